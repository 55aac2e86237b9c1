/// Names the operator calls of a pass so that other passes of its chunk have them under the same
/// names, even where they make fewer calls or more: tables that are made once, casts that are kept
/// for later passes; internal.
///
/// A key says where a call is by what the pass has saved, which every step knows. Its scope does
/// not count: steady steps do not ask for scopes. What a call computes from which values says its
/// signature (torch/graph/signature.hpp).
#pragma once

#include <algorithm>
#include <compare>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

struct CallKey {
  int saves = 0;  ///< As in OperatorProfile.
  /// As in OperatorProfile. Before the first save the number of the call less the calls that had
  /// begun by then, because only the way to that save is sure: -1 for the last one, which saves.
  int ordinal = 0;
  std::string_view name;  ///< Of the operator. Whoever has the key keeps the text.

  auto operator<=>(const CallKey&) const = default;
};

/// Of call `number` of a pass. `before_first_save`: ChunkProfile::calls_before_first_save of it.
[[nodiscard]] CallKey call_key(int number, int saves, int ordinal, std::string_view name,
                               int before_first_save);

/// Finds what belongs to a call of another pass.
class CallIndex {
 public:
  using Entry = std::pair<CallKey, int>;

  CallIndex() = default;
  explicit CallIndex(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::ranges::stable_sort(entries_, {}, &Entry::first);
  }

  /// The entries with the key, in the order in which they were given.
  [[nodiscard]] auto find(const CallKey& key) const {
    return std::ranges::equal_range(entries_, key, {}, &Entry::first);
  }

 private:
  std::vector<Entry> entries_;
};

/// By the number of a call in its pass: that of the chunk's operator with the same key; -1 if there
/// is none.
[[nodiscard]] std::vector<int> match_calls(const ChunkProfile& chunk,
                                           const std::vector<CallKey>& calls);

/// Moments of these kinds are numbered by calls.
[[nodiscard]] bool is_of_call(MomentKind kind) noexcept;

/// The moments of the pass with its calls numbered so. Those of calls without a number are left
/// out: their time and bytes are those of the moment that follows.
[[nodiscard]] std::vector<Moment> remapped(const std::vector<Moment>& moments,
                                           const std::vector<int>& numbers);

}  // namespace spillway
