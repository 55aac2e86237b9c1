/// What profiles and plans have in common, for json_fields.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "spillway/plan/profile.hpp"
#include "util/json_fields.hpp"

namespace spillway {

constexpr auto all_values(FixedReason) {
  return std::array{FixedReason::kNone,
                    FixedReason::kParameter,
                    FixedReason::kRegisteredBuffer,
                    FixedReason::kCallerOwned,
                    FixedReason::kChangedLater,
                    FixedReason::kOwnedElsewhere,
                    FixedReason::kOtherDevice,
                    FixedReason::kUnsupportedLayout,
                    FixedReason::kSmall};
}

constexpr auto all_values(MomentKind) {
  return std::array{MomentKind::kCallBegins, MomentKind::kCallEnds,
                    MomentKind::kSave,       MomentKind::kBackwardBegins,
                    MomentKind::kUnpack,     MomentKind::kDrop,
                    MomentKind::kEnd};
}

/// Sizes, or times, of one list are added up in many ways. None of those sums wraps, also over
/// thousands of passes, as long as the list's own is at most `most`.
/// Errors: ConfigError for the number with which it is more.
template <typename T, typename NumberOf>
void check_sum(const std::vector<T>& list, NumberOf&& number_of, std::int64_t most,
               const char* unit, const JsonPath& path, const JsonSource& source) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    sum += std::max<std::int64_t>(number_of(list[i]), 0);
    if (sum <= most) continue;
    refuse(source, JsonPath(path, i),
           "with this one the sum of the list is " + std::to_string(sum) + unit + "; at most " +
               std::to_string(most) + unit + " wanted");
  }
}

/// For check_sum().
inline constexpr std::int64_t kMostBytesOfList = std::int64_t{1} << 50U;

/// A member that is read or written.
template <typename Value, typename Type>
concept MaybeConst = std::same_as<std::remove_const_t<Value>, Type>;

template <typename Fields, MaybeConst<Position> Value>
void describe(Fields& fields, Value& position) {
  fields("scope", position.scope);
  fields("saver", position.saver);
  fields("ordinal", position.ordinal);
}

}  // namespace spillway
