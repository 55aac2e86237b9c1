/// Matches the calls of one pass with those of another, where one has more of them: tables that are
/// made once, casts that are kept for later passes; internal.
#pragma once

#include <string_view>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// A call of a pass, with what OperatorProfile has to find it again.
struct PassCall {
  int number = 0;  // In its pass.
  std::string_view name;
  int saves = 0;
  int ordinal = 0;
};

/// Moments of these kinds are numbered by calls.
[[nodiscard]] bool is_of_call(MomentKind kind) noexcept;

/// By the number of a call in its pass: that of the chunk's operator which is the same one; -1 if
/// there is none. Before the first save calls are counted from there back, since only the way to it
/// is sure.
[[nodiscard]] std::vector<int> match_calls(const ChunkProfile& chunk,
                                           const std::vector<PassCall>& calls);

/// The moments of the pass with its calls numbered so. Those of calls without a number are left
/// out: their time and bytes are those of the moment that follows.
[[nodiscard]] std::vector<Moment> remapped(const std::vector<Moment>& moments,
                                           const std::vector<int>& numbers);

}  // namespace spillway
