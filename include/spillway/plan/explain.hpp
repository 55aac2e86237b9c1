/// Plans and rules as text for people.
#pragma once

#include <string>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// Tables: for each chunk, buffers and bytes by scope (numbers folded: "layers.0..9.mlp"),
/// operator, action and reason, and the anchors of replays; totals by action, as shares of what
/// autograd saves; limits; budget, predictions and bound; notes. With the profile it also says who
/// made the buffers and how fast the recorded pass and the link were.
/// Errors: InvalidArgument if the profile is of another structure than the plan.
[[nodiscard]] std::string explain(const Plan& plan, const Profile* profile = nullptr);

/// The end of explain(): totals by action, limits, budget, predictions and bound, notes.
[[nodiscard]] std::string summarize(const Plan& plan);

/// The rules translated for `shape`, as TOML that parse_rules() reads as the same rules, with notes
/// and the meaning of the module words as comments.
/// Errors: as translate().
[[nodiscard]] std::string explain_rules(const Rules& rules, const ModelShape& shape);

}  // namespace spillway
