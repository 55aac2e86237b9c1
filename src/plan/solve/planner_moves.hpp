/// Small changes of a choice that may make it better.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/solve/planner_evaluate.hpp"

namespace spillway {

/// Another action for a buffer, or another request for an unsaved value.
struct Move {
  std::size_t chunk = 0;
  bool value = false;
  std::size_t id = 0;
  ActionKind action{};  ///< For a buffer.
  Request request{};    ///< For a value.
  double rank = 0;      ///< Smaller ones are tried first.
};

void make(const Move& move, Choice& choice);

/// Moves that may free bytes at the peak, the cheapest first.
[[nodiscard]] std::vector<Move> moves_against_peak(const std::vector<ChunkSpace>& spaces,
                                                   const Choice& choice,
                                                   const Evaluated& evaluated);

/// One action for the buffers at the same position in each layer: of all layers, and of some of
/// them.
[[nodiscard]] std::vector<std::vector<Move>> moves_of_all_layers(
    const std::vector<ChunkSpace>& spaces);

/// Moves that may save time, the most promising first.
[[nodiscard]] std::vector<Move> moves_for_time(const std::vector<ChunkSpace>& spaces,
                                               const Choice& choice, const Evaluated& evaluated);

}  // namespace spillway
