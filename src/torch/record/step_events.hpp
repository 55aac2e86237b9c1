/// What a traced step did, as events, from its log; internal.
#pragma once

#include <memory>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"
#include "spillway/trace/trace.hpp"
#include "spillway/transfer/statistics.hpp"
#include "torch/record/step_log.hpp"

namespace spillway {

/// A traced step that is over, and what its events are named by.
struct TracedStep {
  struct TracedPass {
    PassStep step;
    bool saved = false;  // It saved something; else it is the caller's own compute.
  };

  std::shared_ptr<const StepLog> log;
  std::vector<TracedPass> passes;  // By number.
  // What to simulate for a prediction; null or empty where the step was not planned.
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<const Plan> plan;
  PassSchedule schedule;
};

/// Blocks until everything has happened. `records` count from the log's epoch.
/// Errors: DeviceError of a failed device.
[[nodiscard]] StepEvents step_events_of(const TracedStep& step, TorchDevice& device,
                                        const std::vector<TransferRecord>& records);

}  // namespace spillway
