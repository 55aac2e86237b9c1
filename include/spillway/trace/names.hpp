/// Names for what the spans of a step are about: the same ones whether it was simulated or
/// measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// "layers.3.mlp aten::mm"; `what` alone outside of scopes.
[[nodiscard]] std::string name_in(const std::string& scope, const std::string& what);

/// "backward, chunk 0, micro-batch 2"
[[nodiscard]] std::string name_of(const PassStep& pass);

/// A buffer that a pass saved, or an anchor; anchors count on from the buffers' ids. Any other
/// number: "a buffer that is not in the plan".
[[nodiscard]] std::string buffer_name(const ChunkPlan& plan, int id);

/// The work before a moment.
struct Piece {
  std::string name;
  int since = -1;  ///< The moment that it began with: pieces of one operator have the same one.
  bool backward = false;
};

/// By moment, and one more for what comes after the last. `call` names an operator by its number,
/// `unpacked` a buffer by the index of its unpack.
[[nodiscard]] std::vector<Piece> pieces_of(const std::vector<Moment>& moments,
                                           const std::function<std::string(int)>& call,
                                           const std::function<std::string(int)>& unpacked);

}  // namespace spillway
