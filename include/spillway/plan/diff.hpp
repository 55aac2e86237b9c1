/// What differs between two plans, for people and for programs.
///
/// Buffers are matched by chunk and position, so that plans of different models can be compared as
/// far as their buffers have the same names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/plan.hpp"

namespace spillway {

/// The "schema" field of a difference's JSON.
inline constexpr std::string_view kPlanDifferenceSchema = "spillway.diff/1";

/// A limit or prediction that only one plan has, or that is not the same.
template <typename Value>
struct ChangedValue {
  std::string name;
  std::optional<Value> from;
  std::optional<Value> to;

  bool operator==(const ChangedValue&) const = default;
};

/// Buffers (or anchors) of like scopes with which something else is done.
struct ChangedActions {
  int chunk = 0;
  std::string scope;  ///< Numbers folded: "layers.0..9.mlp".
  std::string name;   ///< The operator that saved them; of anchors the one that made them.
  std::string from;   ///< As to_string(Action); empty: the first plan does not have them.
  std::string to;     ///< Likewise of the second one.
  std::size_t buffers = 0;
  Bytes bytes;  ///< As the second plan has them, or else the first.

  bool operator==(const ChangedActions&) const = default;
};

struct PlanDifference {
  std::string from_structure;
  std::string to_structure;
  std::vector<ChangedValue<Bytes>> bytes;         ///< Limits, budget and predicted peak.
  std::vector<ChangedValue<std::int64_t>> times;  ///< Predicted ones, in ns.
  std::vector<ChangedActions> buffers;            ///< In the order of each group's first buffer.
  std::vector<ChangedActions> anchors;
  std::vector<std::string> others;  ///< What else is not the same: "notes", "reasons".

  /// Exactly if the plans are.
  [[nodiscard]] bool empty() const noexcept;
  [[nodiscard]] bool same_structure() const noexcept { return from_structure == to_structure; }
};

[[nodiscard]] PlanDifference difference(const Plan& from, const Plan& to);

/// Tables; "the plans are equal" if there is nothing to say.
[[nodiscard]] std::string to_text(const PlanDifference& difference);
[[nodiscard]] std::string to_json(const PlanDifference& difference);

}  // namespace spillway
