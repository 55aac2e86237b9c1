/// What a curve of budgets shows: a table, JSON, a picture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/planner.hpp"

namespace spillway {

/// The "schema" field of a curve's JSON.
inline constexpr std::string_view kCurveSchema = "spillway.curve/1";

struct Curve {
  std::int64_t base_ns = 0;  ///< Of a step in which everything is kept.
  Bytes base_peak;           ///< The peak of that step.
  std::vector<CurvePoint> points;
};

/// A line for each budget: its share of the base's peak, the predicted peak, step time and bound as
/// multiples of the base, and what is kept, offloaded and recomputed, as shares of what may be
/// moved. Budgets without a plan say so.
[[nodiscard]] std::string to_text(const Curve& curve);

[[nodiscard]] std::string to_json(const Curve& curve);

/// Budget against step time and bound, as a picture of its own that follows its viewer's light or
/// dark colours. Budgets without a plan are left out.
[[nodiscard]] std::string to_svg(const Curve& curve);

}  // namespace spillway
