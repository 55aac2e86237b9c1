/// Simulates a step of a session under a plan in the order of the host: saves, copies, releases,
/// replays, reloads, drops, and the memory they take. That order, and so the memory, does not
/// depend on time; listeners add times.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/simulate/planned_chunk.hpp"
#include "plan/simulate/sim_port.hpp"
#include "plan/simulate/step_listener.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/engine/residency.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

struct StepLimits {
  std::int64_t host = EngineLimits::kNone;
  EngineLimits engine;

  /// Limits of the plan, or else `windows`, or else those of a session.
  StepLimits(const Plan& plan, const Limits& windows);
};

/// By pass of a schedule, in the order of forwards.
using StepResidency = std::vector<Residency>;

class StepWalk {
 public:
  /// Keeps references.
  StepWalk(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
           const StepLimits& limits, StepListener& listener);

  /// Before run(): `lists` instead of the plan's, one for each pass.
  void use(const StepResidency& lists) { given_ = &lists; }
  /// Before run(): writes what the engine does as lists. With them, and without limits of the
  /// listener, it does the same; but it copies nothing out that is never released.
  void record_to(StepResidency& lists) { recorded_ = &lists; }

  /// Before run(): writes the engine's commands to `log`.
  void log_to(CommandLog& log) { port_.machine().log_to(&log); }
  void run();

  /// Bytes on the device, above what was there before the step, if `other` are those of the piece.
  [[nodiscard]] std::int64_t bytes_with(std::int64_t other) const {
    return other + base_bytes_ + managed_bytes() + port_.hidden_bytes() + cached_bytes_;
  }
  /// Bytes of managed items on the device.
  [[nodiscard]] std::int64_t managed_bytes() const noexcept { return port_.machine().on_device(); }
  /// Whether a buffer was kept because host memory was full.
  [[nodiscard]] bool found_no_room() const noexcept { return port_.found_no_room(); }
  [[nodiscard]] std::int64_t host_peak() const noexcept { return port_.host_peak(); }
  [[nodiscard]] std::int64_t bytes_out() const noexcept { return port_.bytes_out(); }
  [[nodiscard]] std::int64_t bytes_back() const noexcept { return port_.bytes_back(); }
  [[nodiscard]] std::int64_t bytes_gathered() const noexcept { return port_.bytes_gathered(); }

  /// The untracked bytes of a piece, for bytes_with().
  [[nodiscard]] std::int64_t untracked_at(const StepPosition& position) const;
  [[nodiscard]] const PlannedChunk& chunk_of(const StepPosition& position) const {
    return chunks_[static_cast<std::size_t>(position.chunk)];
  }
  /// Whether the pass's backward is what follows its forward.
  [[nodiscard]] bool backward_follows(int pass) const;
  /// The index of a pass's moment among all moments of the step.
  [[nodiscard]] int position(int pass, int moment) const {
    const Part& part = parts_[static_cast<std::size_t>(pass)];
    return moment + (moment < part.backward_begins ? part.forward : part.backward);
  }
  /// Whether the model references it at the current moment of its pass.
  [[nodiscard]] bool model_has(ItemRef what) const {
    return port_.model_has(pass(what.pass), what.item);
  }
  [[nodiscard]] bool on_device(ItemRef what) const {
    return is_on_device(pass(what.pass).items[static_cast<std::size_t>(what.item)].state);
  }
  /// What may be released, oldest first, as long as `look` says true.
  template <typename Look>
  void for_each_in_window(Look&& look) const {
    port_.machine().for_each_in_window([&](const SimBuffer& each) {
      return look(ItemRef{each.pass->number, each.id});
    });
  }
  [[nodiscard]] const PlannedItem& item(ItemRef what) const {
    return pass(what.pass).chunk->items[static_cast<std::size_t>(what.item)];
  }

 private:
  /// Where a pass stands in the step.
  struct Part {
    int chunk = 0;
    int backward_begins = 0;
    int forward = 0;   // The offset of its forward moments.
    int backward = 0;  // The offset of its backward moments.
  };

  [[nodiscard]] const SimPass& pass(int number) const {
    return port_.passes()[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] SimPass& current() {
    return port_.passes()[static_cast<std::size_t>(port_.now.pass)];
  }
  [[nodiscard]] static std::size_t forwards_of(const PassSchedule& schedule);
  void lay_out();
  void begin_pass(const PassStep& step);
  void record_held(const SimPass& pass);
  void record_reloads(const SimPass& pass, int unpack);
  void finish_recording();
  void find_base();
  void run_part(int first, int last);
  void act();
  void run_events(ItemEventKind first, ItemEventKind last);
  void add_cached();
  void save(int site);
  void begin_backward();
  void unpack(int unpack);
  void recompute(SimBuffer& buffer, int unpack);
  void replay(SimPass& pass, const ReplayJob& job);

  const std::vector<PlannedChunk>& chunks_;
  const PassSchedule& schedule_;
  StepListener& listener_;
  const StepResidency* given_ = nullptr;
  StepResidency* recorded_ = nullptr;
  std::vector<Part> parts_;  // By pass.
  SimPort port_;
  std::int64_t base_bytes_ = 0;  // Of passes that do not run.
  // Of the chunk that runs, if it has run before: what it had added by then.
  const std::vector<std::int64_t>* grown_ = nullptr;
  std::int64_t cached_bytes_ = 0;
};

}  // namespace spillway
