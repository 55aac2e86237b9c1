/// What a step did, as marks on its streams while it runs, and as events once they have happened;
/// internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/schedule.hpp"
#include "spillway/trace/trace.hpp"
#include "spillway/transfer/statistics.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/record/pass.hpp"
#include "torch/record/step_clock.hpp"
#include "torch/record/wait_times.hpp"

namespace spillway {

/// Filled under the session's lock while the step runs; read by events_of() when it is over.
class StepTrace {
 public:
  /// Starts the trace of a step.
  StepTrace(TimeMark epoch, std::shared_ptr<const Profile> profile,
            std::shared_ptr<const Plan> plan)
      : epoch_(std::move(epoch)), profile_(std::move(profile)), plan_(std::move(plan)) {}

  /// The operator call number `call` of the pass begins.
  void call_begins(const Pass& pass, int call, std::string name);
  /// Backward reads `buffer`; -1: an unknown one.
  void unpacked(const Pass& pass, int buffer);
  /// The offload of a buffer was queued.
  void copied_out(const Pass& pass, int buffer, std::uint64_t ticket);
  /// A buffer was all-gathered; `end`: when compute could use it.
  void gathered(int pass, int buffer, std::size_t bytes, TimeMark begin, TimeMark end);
  /// Operators were repeated for a buffer.
  void replayed(const Pass& pass, int buffer, TimeMark begin, TimeMark end);

  /// The step ends: copies what others measured of it. `order`: its forwards and backwards.
  void end(const std::vector<std::shared_ptr<Pass>>& passes,
           const std::vector<std::pair<std::shared_ptr<Pass>, bool>>& order, const StepClock& clock,
           const WaitTimes::Marks& waits);
  /// Sets the plan to take names from, for a recording step, which has none.
  void name_by(std::shared_ptr<const Plan> plan) { plan_ = std::move(plan); }

  /// Where times count from.
  [[nodiscard]] const TimeMark& epoch() const noexcept { return epoch_; }
  /// What to simulate for a prediction: profile, plan and order of the step; null or empty where it
  /// was not planned.
  [[nodiscard]] const std::shared_ptr<const Profile>& profile() const noexcept { return profile_; }
  [[nodiscard]] const std::shared_ptr<const Plan>& plan() const noexcept { return plan_; }
  [[nodiscard]] const PassSchedule& schedule() const noexcept { return schedule_; }

  /// Blocks until everything has happened. `records` count from epoch(). Not under the lock.
  /// Errors: DeviceError of a failed device.
  [[nodiscard]] StepEvents events(TorchDevice& device,
                                  const std::vector<TransferRecord>& records) const;

 private:
  friend class StepEventsReader;

  struct TracedPass {
    PassStep step;
    std::shared_ptr<PassMoments> moments;
    bool saved = false;              // It saved something; else it is the caller's own compute.
    std::vector<std::string> calls;  // Names, by number.
    std::vector<int> unpacks;        // Buffers, in order.
  };
  struct CopyOut {
    std::uint64_t ticket = 0;
    int pass = 0;
    int buffer = -1;
  };
  struct Gathered {
    int pass = 0;
    int buffer = -1;
    Bytes bytes;
    TimeMark begin;
    TimeMark end;
  };
  struct Repeated {
    int pass = 0;
    int buffer = -1;
    TimeMark begin;
    TimeMark end;
  };

  [[nodiscard]] TracedPass& of(const Pass& pass);

  TimeMark epoch_;
  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<const Plan> plan_;
  PassSchedule schedule_;
  std::vector<TracedPass> passes_;  // By number.
  std::vector<CopyOut> copies_;
  std::vector<Gathered> gathers_;
  std::vector<Repeated> replays_;
  std::vector<StepClock::Interval> intervals_;
  std::vector<StepClock::MemoryMark> memory_;
  std::vector<WaitTimes::Wait> waits_;
};

}  // namespace spillway
