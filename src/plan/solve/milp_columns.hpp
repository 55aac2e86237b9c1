/// The part of the MILP model that does not depend on the schedule: the decisions about a chunk and
/// the rows that link them.
#pragma once

#include <vector>

#include "plan/highs/highs.hpp"
#include "plan/solve/planner_space.hpp"

namespace spillway {

/// A share of an item is needed earlier than by backward, because a replay reads it: the share is
/// the column's value. Columns of later moments are not less.
struct Pull {
  int moment = 0;
  int column = -1;
};

/// Columns of one chunk, each from 0 to 1; -1 where there is nothing to decide.
struct ChunkColumns {
  std::vector<int> offload;         ///< By buffer.
  std::vector<int> recompute;       ///< By buffer.
  std::vector<int> replay;          ///< By call: whether it is repeated.
  std::vector<int> hold;            ///< By value: as an anchor.
  std::vector<int> offload_anchor;  ///< By value: as an anchor that is offloaded.
  std::vector<CallWindow> readers;  ///< By value: of the calls that may be repeated and read it.
  /// Replays that read it before backward does, in order.
  std::vector<std::vector<Pull>> offload_pulls;    ///< By buffer.
  std::vector<std::vector<Pull>> recompute_pulls;  ///< By buffer.
  std::vector<std::vector<Pull>> anchor_pulls;     ///< By value; the last one is all of it.
};

/// Adds the columns, and the rows between them:
///  - what is recomputed has its call repeated;
///  - what a repeated call reads is saved, an anchor, or made by a repeated call;
///  - what it reads is needed when it is repeated, at the latest.
/// `slot_of_moment`: moments of the same slot are treated as one.
[[nodiscard]] ChunkColumns add_columns(const ChunkSpace& space,
                                       const std::vector<int>& slot_of_moment, LinearModel& linear);

}  // namespace spillway
