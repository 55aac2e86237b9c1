/// When offloaded buffers are released and reloaded, by position: after which save, at which
/// unpack. Positions hold for all sizes of the buffers. A value; part of a plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace spillway {

/// Of one pass. Items are buffers and anchors, by number in the pass.
struct Residency {
  /// By site: how many offloaded items, of all passes, may wait for their release after its save;
  /// beyond that the oldest are released.
  std::vector<int> pending;
  /// By index in the order of unpacks: how many items, in the order of reloads, have begun to be
  /// reloaded by then. Numbers above `own_reloads` count on into the pass whose backward is next.
  std::vector<int> reloads;
  int own_reloads = 0;  ///< How many items of the pass itself may be reloaded.
  /// Offloaded items that are not even copied, ascending: backward follows before their release.
  std::vector<int> held;

  [[nodiscard]] bool holds(int item) const noexcept {
    return std::binary_search(held.begin(), held.end(), item);
  }

  bool operator==(const Residency&) const = default;
};

/// Of the passes of a chunk.
struct ChunkResidency {
  std::vector<int> unpack_order;  ///< Buffers in the order in which backward unpacks them.
  std::vector<Residency> lists;   ///< Each once.
  /// By pass of the chunk, in the order of forwards: the index of its list. Empty: there is none.
  std::vector<int> list_of_pass;

  /// The list of a pass; passes beyond the last one have its list. Null: there is none.
  [[nodiscard]] const Residency* of(std::size_t pass) const {
    if (list_of_pass.empty()) return nullptr;
    const int list = list_of_pass[std::min(pass, list_of_pass.size() - 1)];
    return &lists[static_cast<std::size_t>(list)];
  }
  [[nodiscard]] bool empty() const noexcept { return list_of_pass.empty(); }
  void add(Residency list) {
    const auto same = std::find(lists.begin(), lists.end(), list);
    list_of_pass.push_back(static_cast<int>(same - lists.begin()));
    if (same == lists.end()) lists.push_back(std::move(list));
  }

  bool operator==(const ChunkResidency&) const = default;
};

}  // namespace spillway
