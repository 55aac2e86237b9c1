/// Simulates the step of a session under a plan on a model of the device: the compute stream, the
/// two copy streams, the memory. Copies, waits, releases and replays and their order are exact;
/// times are modelled.
///
/// The simulated step is one in steady state. Operators and the pieces of backward take their
/// profiled times, longer beside copies that slow them down; copies take the profiled speeds of the
/// link, each way and both at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"
#include "spillway/plan/shard.hpp"

namespace spillway {

/// How long the compute stream waited, by cause; as WaitTotals of a session's report.
struct SimulatedWaits {
  std::int64_t release_ns = 0;
  std::int64_t reload_ns = 0;
  std::int64_t in_place_ns = 0;
  std::int64_t gather_ns = 0;

  bool operator==(const SimulatedWaits&) const = default;
};

enum class SimulatedStream { kCompute, kOut, kBack, kGather };

enum class SimulatedWork { kForward, kBackward, kReplay, kWait, kCopyOut, kCopyBack, kGather };

/// An interval of work on a stream, for traces.
struct SimulatedSpan {
  SimulatedStream stream{};
  SimulatedWork work{};
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  PassStep pass;  ///< Of a copy: that of its buffer.
  /// Of copies, gathers, waits and replays; anchors count on from the buffers' ids.
  int buffer = -1;
  int moment = -1;  ///< In the chunk's timeline; -1 for a copy that another pass requested.
};

/// The offload and reload of a buffer or anchor.
struct SimulatedTransfer {
  PassStep pass;    ///< The forward that saved it.
  int buffer = -1;  ///< Anchors count on from the buffers' ids.
  Bytes bytes;
  /// Its copy out was queued at this moment of its pass,
  int saved = -1;
  std::int64_t saved_ns = 0;
  std::int64_t out_begin_ns = 0;
  std::int64_t out_end_ns = 0;
  /// its device memory was released here,
  PassStep released_in;
  int released = -1;  ///< A moment there; -1: never, it was used without a reload.
  std::int64_t released_ns = 0;
  /// its reload was queued here,
  PassStep reloaded_in;
  int reloaded = -1;  ///< A moment there; -1: never.
  std::int64_t reloaded_ns = 0;
  std::int64_t back_begin_ns = 0;
  std::int64_t back_end_ns = 0;
  /// and this is when compute could use it.
  std::int64_t ready_ns = -1;  ///< -1: it was not needed.
};

/// The bytes allocated from here on, above what was there before the step.
struct MemoryPoint {
  std::int64_t ns = 0;
  std::int64_t bytes = 0;
};

/// The moment of the peak.
struct PeakLocation {
  PassStep pass;
  int moment = -1;    ///< In the chunk's timeline.
  std::string scope;  ///< Of the operator, or of the saved buffer that backward unpacked.
  std::string what;   ///< The operator, or the one that saved the buffer.
};

struct Simulation {
  std::int64_t step_ns = 0;
  std::int64_t replay_ns = 0;  ///< The part of it that repeats operators.
  std::int64_t slowed_ns = 0;  ///< The part by which operators took longer beside copies.
  SimulatedWaits waits;
  Bytes peak;
  PeakLocation peak_location;
  Bytes host_peak;
  Bytes bytes_out;
  Bytes bytes_back;
  Bytes bytes_gathered;  ///< Of whole buffers, this rank's part included.
  std::uint64_t repeated_calls = 0;
  // Empty unless requested.
  std::vector<SimulatedSpan> spans;
  std::vector<SimulatedTransfer> transfers;  ///< In the order of their copies out.
  /// One for every moment of every pass, in order, preceded by that of the unpack's replay.
  std::vector<MemoryPoint> memory;
};

struct SimulateOptions {
  PassSchedule schedule;  ///< Empty: one_pass().
  bool trace = false;     ///< Fill in `spans`, `transfers` and `memory`.
  Limits windows;         ///< Used where the plan has neither lists nor limits.
  ShardModel shard = {};  ///< The ranks that share what the plan shards.
};

/// Whether every chunk was profiled with its times, as simulate() requires.
[[nodiscard]] bool has_times(const Profile& profile);

/// Takes time in proportion to the moments, buffers and copies of the step.
/// Errors: InvalidArgument if the plan is of another structure than the profile, if the profile has
/// no timeline, or for a schedule that is not valid.
[[nodiscard]] Simulation simulate(const Profile& profile, const Plan& plan,
                                  const SimulateOptions& options = {});

/// Gives the plan residency lists for each pass of the schedule, instead of any it has, so that
/// with the profiled sizes device memory stays within `budget` if the plan's decisions permit it:
/// releases as late and reloads as early as memory allows; and a cap for larger sizes. An empty
/// schedule: one_pass().
/// With passes in flight a budget near the smallest possible one may be missed. simulate() shows
/// whether it is.
/// Errors: as simulate().
void set_residency(const Profile& profile, Bytes budget, Plan& plan,
                   const PassSchedule& schedule = {}, const ShardModel& shard = {});

/// Gives a plan by rules residency lists, unless it has some. If the plan or `given`, in this
/// order, have windows: the lists of a step under these. Else those for the least memory that takes
/// no longer than windows of one layer's offloaded bytes (at most 1 GiB) would, even with a link
/// that is a tenth slower than profiled; where the plan's limits have a slowdown, no longer than
/// such windows and the slowdown allow. Where there are none, such windows, in the plan's limits
/// too. A plan that shards gets windows from sizes alone, so that they are the same on all ranks:
/// an offload window of one layer's bytes, and no more prefetched all-gathers than gather_order()
/// has. Where the profile has no times, a plan gets windows and no lists.
/// Errors: as simulate().
void set_windows(const Profile& profile, Plan& plan, const PassSchedule& schedule = {},
                 const ShardModel& shard = {}, const Limits& given = {});

}  // namespace spillway
