/// What profiles and plans have in common, for json_fields.hpp.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>

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
