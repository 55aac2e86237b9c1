/// Runs steps until the plan of a session is final, before steps are timed.
#pragma once

#include <functional>

#include "spillway/torch/session.hpp"

namespace spillway::bench {

/// Steps that a session with a budget needs until its plan is final (one pass a step): a recording
/// step, then up to three times a verification step and one or four timed steps, then verification
/// of the last plan. After that it replans only if a peak exceeds the budget.
inline constexpr int kStepsToSettle = 14;

/// Calls `step`, which runs one step of the session, at least `min_steps` times and until the plan
/// was the same for three steps, but at most `max_steps` times. For sessions that plan in the
/// recording step (SessionOptions::plan_in_background is false); without a budget there is one
/// plan.
void settle(const Session& session, const std::function<void()>& step, int min_steps,
            int max_steps);

}  // namespace spillway::bench
