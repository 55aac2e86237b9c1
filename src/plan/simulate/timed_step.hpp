/// Adds times to the events of a step: of the compute stream and the link.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/simulate/simulated_link.hpp"
#include "plan/simulate/simulator.hpp"
#include "plan/simulate/step_walk.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {

class TimedStep final : public StepListener {
 public:
  /// Keeps references. `trace`: fill in spans and memory. With `alone`, which has a number for each
  /// moment, times are as they were measured, slowed by copies: what they would be without is added
  /// to it, pass by pass.
  TimedStep(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
            const LinkSpeed& link, const ShardModel& shard, bool trace,
            AloneTimes* alone = nullptr);

  void computes(const StepPosition& position, std::int64_t ns, std::int64_t bytes) override;
  void repeats(const StepPosition& position, const ReplayJob& job, std::int64_t bytes) override;
  void copies_out(const StepPosition& position, ItemRef what, std::int64_t bytes) override;
  void releases(const StepPosition& position, ItemRef what) override;
  void gives_up(const StepPosition& position, ItemRef what) override;
  void copies_back(const StepPosition& position, ItemRef what, std::int64_t bytes) override;
  void fetches(const StepPosition& position, ItemRef what) override;
  void gathers(const StepPosition& position, ItemRef what, bool away) override;
  void has_gathered(const StepPosition& position, ItemRef what) override;
  void hands_over() override;

  /// After the end of the step.
  [[nodiscard]] Simulation take() &&;

 private:
  struct Transfer {
    SimulatedTransfer seen;
    int groups[2] = {-1, -1};
    bool cancelled = false;
  };

  [[nodiscard]] Transfer& transfer_of(ItemRef what);
  [[nodiscard]] PassStep step_of(int pass, bool backward) const;
  void wait(const StepPosition& position, ItemRef what, double until, std::int64_t& total);
  /// Computes. Returns how long that takes without copies.
  double go_on(double ns);
  void hold(const StepPosition& position, std::int64_t bytes);
  void span(SimulatedWork work, const StepPosition& position, double begin, int buffer);
  void add_copies(SimulatedLink::Direction direction, const std::vector<int>& transfers);
  void add_trace();
  [[nodiscard]] PeakLocation describe_peak() const;

  const std::vector<PlannedChunk>& chunks_;
  std::vector<PassStep> passes_;  // In the order of their forwards.
  std::vector<int> chunk_index_;  // By pass: the index of its chunk.
  SimulatedLink link_;
  ShardModel shard_;
  bool trace_;
  AloneTimes* alone_;
  double now_ns_ = 0;
  double slowed_ns_ = 0;
  std::int64_t most_bytes_ = 0;
  bool any_bytes_ = false;
  StepPosition peak_;
  std::vector<Transfer> transfers_;                   // In the order of their copies out.
  std::vector<int> back_order_;                       // In the order of their copies back.
  std::vector<std::vector<int>> transfer_of_;         // By pass, then item.
  double gathered_ns_ = 0;                            // The last gather is over then.
  std::map<std::pair<int, int>, double> gather_end_;  // By pass and item.
  Simulation result_;
};

}  // namespace spillway
