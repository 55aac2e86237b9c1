/// What a session did, for people and for programs. Plain values.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"

namespace spillway {

struct ActionTotals {
  std::uint64_t buffers = 0;
  Bytes bytes;
};

struct ScopeLine {
  std::string scope;  ///< The layer's or module's scope, two components at most.
  std::string action;
  std::uint64_t buffers = 0;
  Bytes bytes;
};

/// How long the compute stream stood still for copies in one step. On the CPU, where operators run
/// on the calling thread, that thread did.
struct WaitTotals {
  std::uint64_t step = 0;  ///< The step that was timed, counted from 1; 0: none yet.
  Nanoseconds release{};   ///< In forward: for copies out, before memory was given up.
  Nanoseconds reload{};    ///< In backward: for copies back.
  Nanoseconds in_place{};  ///< In backward: for copies out of buffers that were used in place.
  Nanoseconds gather{};    ///< In backward: for the parts of other ranks.
};

/// What was shared out among the ranks of the shard group in the last step.
struct ShardTotals {
  int ranks = 0;  ///< 0: there is no group.
  std::uint64_t buffers = 0;
  Bytes bytes;                     ///< Of whole buffers; of these this rank held
  Bytes part_bytes;                ///< so many.
  std::uint64_t gathers = 0;       ///< Begun, each of one buffer,
  std::uint64_t late_gathers = 0;  ///< and of these the ones that were not begun ahead.
  /// Gathered again at the end of their forward, because a rank did not save the same.
  std::uint64_t regathered = 0;
  /// Planned to be sharded, and not equal on all ranks: scope, operator, reason.
  std::vector<std::string> mismatched;
};

/// What a budget came to.
struct BudgetReport {
  Bytes budget;                       ///< 0 as long as no plan was made.
  std::uint64_t unplanned_steps = 0;  ///< Steps that ran before there was a plan.
  std::uint64_t plans = 0;            ///< Made so far.
  std::string problem;                ///< What the planner said last, if it found no plan.
  Nanoseconds predicted_step{};       ///< Of the plan that is carried out.
  Nanoseconds base_step{};            ///< Predicted, if everything were kept.
  Nanoseconds bound_step{};           ///< No plan of this kind is faster.
  Bytes predicted_peak;               ///< Above what is allocated before a step; so is
  Bytes measured_peak;  ///< that of the last step that carried the plan out. 0: none yet.
  /// Of the last step that proved it, which has what a layer remakes twice. Above the budget only
  /// if too little of the rest could leave.
  Bytes verification_peak;
  Nanoseconds measured_step{};     ///< Of the last such step that was measured. 0: none yet.
  std::vector<std::string> drift;  ///< Where the last measured step left the prediction.
  /// Measured steps whose peak was above the budget: with sizes that no plan has seen before.
  std::uint64_t over_budget_steps = 0;
};

struct SessionReport {
  int rank = 0;
  std::string device;
  std::uint64_t steps = 0;
  std::uint64_t recorded_steps = 0;

  /// Saved buffers on the device at once: if everything were kept (from the profile), and as it was
  /// in the last step that was not recorded.
  Bytes saved_peak_without;
  Bytes saved_peak_with;
  /// The allocator's own peak in the last step; 0 where the device has no such statistics.
  Bytes device_peak;
  /// By how much the plan lowers that peak if what leaves were gone at once, over all passes in
  /// flight, and how much of that the peak fell by: R.
  Bytes planned_reduction;
  double reduction_ratio = 0;

  /// By action ("keep", "offload", "keep, sharded", ...), of the plan carried out.
  std::map<std::string, ActionTotals> actions;
  std::vector<ScopeLine> scopes;

  /// Of the last step.
  Bytes bytes_out;
  Bytes bytes_back;
  std::uint64_t used_in_place = 0;  ///< Wanted by backward while still on the device.
  std::uint64_t late_reloads = 0;   ///< Reloads that were not asked for ahead.
  /// Planned to be offloaded, and not copied out because backward followed at once, as in the step
  /// before, and sizes were the same. They were never more than the window `offload_window`.
  ActionTotals offloads_skipped;
  std::uint64_t repeated_calls = 0;  ///< Operator calls repeated to recompute buffers,
  std::uint64_t fused_kernels = 0;   ///< some of them by so many kernels, several in each,
  Bytes bytes_recomputed;            ///< and what they gave back.

  /// Buffers that were to be recomputed and are not, because the bits differed or there was no way:
  /// scope, operator, reason.
  std::vector<std::string> demoted;

  std::optional<ShardTotals> shard;  ///< Of a session whose plan shards, or that has a group.

  /// Of the last timed step; see SessionOptions::time_waits_every.
  WaitTotals waits;

  /// Over all steps: why something was kept that was not planned to be, and how often.
  std::map<std::string, std::uint64_t> fallbacks;

  Bytes host_peak;

  std::optional<BudgetReport> budget;  ///< Of a session with one.

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] std::string to_json() const;
};

std::ostream& operator<<(std::ostream& out, const SessionReport& report);

}  // namespace spillway
