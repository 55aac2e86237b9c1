/// By how much a plan can lower the simulated peak of a step.
#pragma once

#include <algorithm>
#include <optional>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

struct PeakReduction {
  Bytes kept;   ///< The peak with everything kept.
  Bytes least;  ///< The peak if moved buffers were released at once and reloaded at their use.

  /// 0 where the plan lowers nothing: what it takes away is not there at the peak.
  [[nodiscard]] Bytes most() const { return kept - std::min(kept, least); }
  /// How much of that was reached by a step with `peak` where one without a plan has `baseline`: R.
  /// Less than 0 if `peak` is higher. Empty where the plan lowers nothing.
  [[nodiscard]] std::optional<double> reached(Bytes baseline, Bytes peak) const;

  bool operator==(const PeakReduction&) const = default;
};

/// Of a step after the first: what the first pass made for good, gradients and tables, is there
/// before such a step and not counted, where a later pass was recorded
/// (ChunkProfile::later_untracked_bytes). Windows and lists of the plan are not looked at. Of
/// `options` the schedule and the ranks that share are. Empty where the profile has no times, which
/// the simulator needs, or the plan was made for another one.
/// Errors: as simulate() for a schedule.
[[nodiscard]] std::optional<PeakReduction> peak_reduction(const Profile& recorded, const Plan& plan,
                                                          const SimulateOptions& options = {});

}  // namespace spillway
