/// What World::group() checks before it communicates.
#pragma once

#include <string>
#include <vector>

namespace spillway {

/// The list of `partition` that holds `rank`.
/// Errors: InvalidArgument unless each of the `size` ranks is in exactly one list.
[[nodiscard]] const std::vector<int>& list_of(int rank, int size, const std::string& name,
                                              const std::vector<std::vector<int>>& partition);

/// The position of `rank` in `list`, which holds it.
[[nodiscard]] int position_of(int rank, const std::vector<int>& list);

}  // namespace spillway
