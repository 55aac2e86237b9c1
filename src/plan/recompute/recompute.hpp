/// From the decision to recompute buffers to the operators that are replayed and the anchors that
/// are kept for them.
///
/// A replay repeats the call that made a buffer's value. What that call reads is available (its
/// buffer is kept or offloaded, or it is persistent), or comes from a replay of its own. What
/// autograd did not save is replayed too, or kept as an anchor:
///  - an anchor, if it enters the layer (or the group of layers) of its reader from another one, or
///    if its call cannot be repeated;
///  - replayed, if its call is replayed anyway, if a recompute rule would match it, or if it is
///    changed in place later;
///  - an anchor, if a keep or offload rule names what makes it, if reloading its bytes over the
///    link takes less time than computing them (and more bytes than its own are computed from it),
///    or if computing it would need other anchors of as many bytes;
///  - replayed otherwise.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/recompute/weigh.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// A request for a value that autograd does not save; it overrides the comparison of bytes and
/// times above, and nothing else.
enum class Request { kNone, kReplay, kKeep, kOffload };

struct RecomputeSummary {
  /// How many recomputed buffers enter a layer, or group of layers, from another one: replays
  /// continue through each of them.
  std::size_t passages = 0;
  std::vector<std::size_t> anchors_by_rule;  ///< How many anchors each rule decided.
};

/// `plan` has decisions for the chunk that was weighed. Those to recompute what cannot
/// be recomputed become their fallback; then anchors, operators and need_order are filled in.
/// `requests`: by value; may be empty. One to keep or offload is also the action of an anchor that
/// no rule decides. Takes time in proportion to the graph, and constant stack.
RecomputeSummary plan_recompute(const Weights& weights, ChunkPlan& plan,
                                const std::vector<Request>& requests = {});

}  // namespace spillway
