/// What a session does with a plan, step by step, on a model of the device: the compute stream, the
/// two copy streams, the memory. Exact in what it does (which copies, waits, releases and replays,
/// in which order), a model in how long things take.
///
/// It stands for a step in steady state. Times come from the profile: operators and the pieces of
/// backward as they were measured, copies by the link's speeds, each way and both at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// How long the compute stream stood still, by cause; as WaitTotals of a session's report.
struct SimulatedWaits {
  std::int64_t release_ns = 0;
  std::int64_t reload_ns = 0;
  std::int64_t in_place_ns = 0;

  bool operator==(const SimulatedWaits&) const = default;
};

enum class SimulatedStream { kCompute, kOut, kBack };

enum class SimulatedWork { kForward, kBackward, kReplay, kWait, kCopyOut, kCopyBack };

/// Something a stream did, for traces.
struct SimulatedSpan {
  SimulatedStream stream{};
  SimulatedWork work{};
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  PassStep pass;
  int buffer = -1;  ///< Of copies, waits and replays; anchors count on from the buffers' ids.
  int moment = -1;  ///< In the chunk's timeline.
};

/// The bytes allocated from here on, above what was there before the step.
struct MemoryPoint {
  std::int64_t ns = 0;
  std::int64_t bytes = 0;
};

/// Where the most was allocated.
struct PeakPlace {
  PassStep pass;
  int moment = -1;    ///< In the chunk's timeline.
  std::string scope;  ///< Of the operator, or of the saved buffer that backward wanted.
  std::string what;   ///< The operator, or the one that saved the buffer.
};

struct Simulation {
  std::int64_t step_ns = 0;
  std::int64_t replay_ns = 0;  ///< The part of it that repeats operators.
  SimulatedWaits waits;
  Bytes peak;
  PeakPlace peak_place;
  Bytes host_peak;
  Bytes bytes_out;
  Bytes bytes_back;
  std::vector<SimulatedSpan> spans;  ///< Empty unless asked for.
  std::vector<MemoryPoint> memory;   ///< Likewise.
};

struct SimulateOptions {
  PassSchedule schedule;  ///< Empty: one_pass().
  bool trace = false;     ///< Fill in `spans` and `memory`.
  Limits windows;         ///< Used where the plan has neither allowances nor limits.
};

/// Takes time in proportion to the moments, buffers and copies of the step.
/// Errors: InvalidArgument if the plan is of another structure than the profile, if the profile has
/// no timeline, or for a schedule that is not valid.
[[nodiscard]] Simulation simulate(const Profile& profile, const Plan& plan,
                                  const SimulateOptions& options = {});

/// Fills in the plan's allowances, so that as long as sizes stay the recorded ones the device never
/// holds more than `budget`, where the plan's decisions allow that at all: releases as late and
/// reloads as early as memory allows. An empty schedule: one_pass().
/// Errors: as simulate().
void set_allowances(const Profile& profile, Bytes budget, Plan& plan,
                    const PassSchedule& schedule = {});

}  // namespace spillway
