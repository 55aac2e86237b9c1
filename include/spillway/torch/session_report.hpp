/// What a session did, as values, as text and as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "spillway/plan/budget_report.hpp"

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

/// How long the compute stream waited for copies in one step. On the CPU, where operators run on
/// the calling thread: how long that thread waited.
struct WaitTotals {
  std::uint64_t step = 0;  ///< The step that was timed, counted from 1; 0: none yet.
  Nanoseconds release{};   ///< In forward: for offloads, before memory was released.
  Nanoseconds reload{};    ///< In backward: for reloads.
  Nanoseconds in_place{};  ///< In backward: for offloads of buffers that were used in place.
  Nanoseconds gather{};    ///< In backward: for the parts of other ranks.
};

/// What was sharded over the ranks of the shard group in the last step.
struct ShardTotals {
  int ranks = 0;  ///< 0: there is no group.
  std::uint64_t buffers = 0;
  Bytes bytes;                     ///< Of the whole buffers.
  Bytes part_bytes;                ///< Of the parts on this rank.
  std::uint64_t gathers = 0;       ///< All-gathers, each of one buffer.
  std::uint64_t late_gathers = 0;  ///< All-gathers that were not prefetched.
  /// Buffers gathered at the end of their forward because a rank did not save the same tensors.
  std::uint64_t regathered = 0;
  /// Buffers planned to be sharded that are not equal on all ranks: scope, operator, reason.
  std::vector<std::string> mismatched;
};

/// Forward passes of steps without a plan that host memory had no room for: what they saved was
/// recomputed at once, compared, and discarded, region by region (docs/session.md).
struct RegionTotals {
  std::uint64_t regions = 0;
  ActionTotals discarded;        ///< Had the same bits.
  std::uint64_t mismatched = 0;  ///< Had others, or could not be recomputed: offloaded or kept.
};

struct SessionReport {
  int rank = 0;
  std::string device;
  std::uint64_t steps = 0;
  std::uint64_t recorded_steps = 0;
  std::optional<MeasuredStep> last_step;  ///< Of any kind; empty before the first one ended.

  /// "The last step" from here on: the last one that was not a recording step. 0 before there was
  /// one.
  /// Peak of saved buffers on the device: if everything had been kept, and as it was.
  Bytes saved_peak_without;
  Bytes saved_peak_with;
  /// The allocator's own peak in the last step; 0 where the device has no such statistics.
  Bytes device_peak;
  /// By how much the plan would lower the peak of saved buffers if offloads were instant, over all
  /// passes in flight.
  Bytes planned_reduction;
  /// Peak reduction ratio (Megatron's R): the share of it by which the peak fell.
  double reduction_ratio = 0;

  /// By action ("keep", "offload", "keep, sharded", ...), of the current plan.
  std::map<std::string, ActionTotals> actions;
  std::vector<ScopeLine> scopes;

  /// Copied in the last step: offloaded, and reloaded.
  Bytes bytes_out;
  Bytes bytes_back;
  std::uint64_t used_in_place = 0;  ///< Offloaded buffers that backward read before their release.
  std::uint64_t late_reloads = 0;   ///< Reloads that were not prefetched.
  /// Buffers planned to be offloaded whose copies were skipped, because their backward follows at
  /// once, as in the previous step and with the same sizes. At most as large as `offload_window`.
  ActionTotals offloads_skipped;
  std::uint64_t repeated_calls = 0;  ///< Operator calls repeated to recompute buffers.
  std::uint64_t fused_kernels = 0;   ///< Kernels that repeated several of these calls at once.
  Bytes bytes_recomputed;            ///< Size of the recomputed buffers.

  /// Buffers planned to be recomputed that are not, because the bits differ or there is no recipe:
  /// scope, operator, reason.
  std::vector<std::string> demoted;

  std::optional<ShardTotals> shard;  ///< If the plan shards or the session has a group.

  /// Of the last timed step; see SessionOptions::time_waits_every.
  WaitTotals waits;

  /// Over all steps: reasons why a buffer or pass was not handled as planned, and how often.
  std::map<std::string, std::uint64_t> fallbacks;

  RegionTotals regions;  ///< Over all steps.

  Bytes host_peak;
  Bytes host_pinned;  ///< Pinned host memory now.
  /// Why no more could be pinned, and what to do; empty if all that was wanted is.
  std::string host_problem;
  /// What saved buffers have now, on the device and in host memory. Between steps only graphs that
  /// still live have any.
  Bytes device_now;
  Bytes host_now;

  std::optional<BudgetReport> budget;  ///< Of a session with a budget.

  [[nodiscard]] std::string to_text() const;
  /// Schema "spillway.report/2". For one release it also has what schema 1 called otherwise under
  /// the old names, which `renamed` lists (old -> new).
  [[nodiscard]] std::string to_json() const;
};

std::ostream& operator<<(std::ostream& out, const SessionReport& report);

}  // namespace spillway
