/// From the request to recompute buffers to the operators that are repeated and the values that are
/// held for it.
///
/// A replay repeats the call that made a buffer's value. What that call reads is there already (its
/// buffer is kept or offloaded, or it lasts), or comes from a replay of its own. What autograd did
/// not save is replayed too, or held as an anchor:
///  - held, if it enters the layer (or the group of layers) of its reader from another one, or if
///    its call cannot be repeated;
///  - replayed, if its call is replayed anyway, if a recompute rule would match it, or if it is
///    changed in place later;
///  - held, if a keep or offload rule names what makes it, if fetching its bytes over the link
///    takes less time than making them (and more is made of it than its own bytes), or if making it
///    would need other anchors of as many bytes;
///  - replayed otherwise.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/policy/match.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// What is wanted of a value that autograd does not save, where none of the above but bytes and
/// times speaks.
enum class Request { kNone, kReplay, kKeep, kOffload };

struct RecomputeSummary {
  /// How many recomputed buffers enter a layer, or group of layers, from another one: replays run
  /// on through each of them.
  std::size_t passages = 0;
  std::vector<std::size_t> anchors_by_rule;  ///< How many anchors each rule placed.
};

/// `plan` has the decisions of the rules, which must be translated. Those to recompute what cannot
/// be made again become their second choice; then anchors, operators and need_order are filled in.
/// `requests`: by value; may be empty. One to keep or offload also says what becomes of an anchor
/// that no rule places.
/// Takes time in proportion to the graph, and constant stack.
RecomputeSummary plan_recompute(const ChunkProfile& chunk, const Profile& profile,
                                const Rules& rules, const Matcher& matcher, ChunkPlan& plan,
                                const std::vector<Request>& requests = {});

}  // namespace spillway
