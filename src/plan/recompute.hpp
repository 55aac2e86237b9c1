/// From the wish to recompute buffers to the operators that are repeated and the values that are
/// held for it.
///
/// A replay repeats the call that made a buffer's value. What that call reads is there already (its
/// buffer is kept or offloaded, or it lasts), or comes from a replay of its own. What autograd did
/// not save is replayed too, or held as an anchor:
///  - held, if it enters the layer (or the group of layers) of its reader from another one, if the
///    call cannot be repeated, or if a keep or offload rule names what makes it;
///  - replayed, if a recompute rule would match it, or if the call is replayed anyway;
///  - else held, if fetching its bytes over the link takes less time than making them, or if making
///    it would need other anchors of as many bytes; replayed otherwise.
#pragma once

#include "plan/match.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// `plan` has the decisions of the rules, which must be translated. Those to recompute what cannot
/// be made again become their second choice; then anchors, operators and need_order are filled in.
/// Returns how many recomputed buffers enter a layer, or group of layers, from another one: through
/// each of them replays run on. Takes time in proportion to the graph, and constant stack.
std::size_t plan_recompute(const ChunkProfile& chunk, const Profile& profile, const Rules& rules,
                           const Matcher& matcher, ChunkPlan& plan);

}  // namespace spillway
