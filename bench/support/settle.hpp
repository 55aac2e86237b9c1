/// Lets sessions come to the plan that they will keep, before their steps are timed.
#pragma once

#include <functional>

#include "spillway/torch/session.hpp"

namespace spillway::bench {

/// So many steps of one pass a session with a budget needs until its plan stays: it records, then
/// proves a plan and times a step or four, at most three times, and proves the last plan. A plan
/// whose peak is above the budget is made anew after that.
inline constexpr int kStepsToSettle = 14;

/// Calls `step`, which runs one of the session's, at least `least` times and until the plan was the
/// same for three, but at most `most` times. For sessions that plan in the step that records
/// (SessionOptions::plan_in_background is false); without a budget there is one plan.
void settle(const Session& session, const std::function<void()>& step, int least, int most);

}  // namespace spillway::bench
