/// The planner's MILP model (docs/planner.md): which buffers are kept, offloaded or recomputed, how
/// many bytes the link carries in each slot, and how long the slots take.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/highs/highs.hpp"
#include "plan/solve/milp_columns.hpp"
#include "plan/solve/milp_slots.hpp"
#include "plan/solve/planner_space.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// A slot covers several moments, so the model is an approximation. In which direction:
enum class Stance {
  /// Copies out free memory when a slot begins, copies back take memory when it ends, replays take
  /// no memory of their own: every execution is a solution, so the relaxation gives a lower bound.
  kOptimistic,
  /// The opposite: a solution needs no less memory than its execution.
  kCautious,
};

struct MilpOptions {
  Stance stance = Stance::kCautious;
  /// The limit on device memory. Empty: memory is minimised first, then time.
  std::optional<std::int64_t> budget;
  std::optional<std::int64_t> most_ns;     ///< The limit on the step time.
  std::optional<std::int64_t> host;        ///< The limit on host memory.
  double link = 1;                         ///< The share of the link's speed that is assumed.
  std::vector<std::int64_t> reserve = {};  ///< By slot: bytes to leave free; may be empty.
};

class MilpModel {
 public:
  /// Keeps references to `spaces` and `slots`.
  MilpModel(const std::vector<ChunkSpace>& spaces, const Slots& slots, const PassSchedule& schedule,
            const LinkSpeed& link, const MilpOptions& options);

  [[nodiscard]] LinearModel& linear() { return linear_; }
  /// The choice that a solution stands for.
  [[nodiscard]] Choice choice(const std::vector<double>& solution) const;
  /// The objective as time or, without a budget, as bytes.
  [[nodiscard]] std::int64_t nanoseconds(double objective) const;
  [[nodiscard]] std::int64_t bytes(double objective) const;

 private:
  using Terms = std::vector<LinearModel::Term>;

  /// More or less than if everything were kept, from a moment on.
  struct Change {
    int moment = 0;  // Of the pass that the slot is of.
    LinearModel::Term term;
  };

  /// What happens in a slot beside the flows of its own columns.
  struct SlotEvents {
    std::vector<Change> memory;  // On the device.
    Terms enters;                // What may be copied out from here on.
    Terms due_at_start;          // What must be reloaded before it begins.
    Terms due_at_end;            // What must be reloaded by its end.
    Terms freed;                 // On the host.
    Terms replays;               // Milliseconds of replays, here at the latest.
    Terms may_come_ahead;        // Milliseconds of replays that are due later but may be here.
  };

  /// One pass of a chunk: where its forward and its backward stand in the schedule.
  struct Pass {
    std::size_t chunk = 0;
    int forward = 0;
    int backward = 0;
  };

  /// The columns of the slot before.
  struct State {
    int pool = -1;        // Bytes that may be copied out.
    int away = -1;        // Bytes that were copied out and not reloaded.
    int prefetched = -1;  // Bytes that were reloaded and are not due.
    int memory = -1;      // On the device, relative to a step in which everything is kept.
    int host = -1;        // On the host, where that is limited.
    int early = -1;       // Milliseconds of replays ahead of their time.
  };

  void find_passes(const PassSchedule& schedule);
  void add_buffer(const Pass& pass, std::size_t id);
  void add_offload(const Pass& pass, std::size_t id);
  void add_anchor(const Pass& pass, std::size_t id);
  void add_replay(const Pass& pass, std::size_t call);
  void add_slot(int slot, State& state);
  void add_time(int slot, State& state, int out, int back);
  [[nodiscard]] Terms slowing(int out, int back) const;
  void add_host(int slot, State& state, int out, int back);
  void add_link(int slot, int out, int back);
  void add_memory(int slot, State& state, int out, int back);

  [[nodiscard]] int slot_after(const Pass& pass, int moment) const;
  [[nodiscard]] bool optimistic() const { return options_.stance == Stance::kOptimistic; }
  void change(const Pass& pass, int moment, std::int64_t bytes, int column, double factor);
  void enter(const Pass& pass, int made, int last_forward_use, std::int64_t bytes, int column);
  void due(const Pass& pass, int moment, std::int64_t bytes, int column, double factor);

  const std::vector<ChunkSpace>& spaces_;
  const Slots& slots_;
  LinkSpeed link_;
  MilpOptions options_;
  LinearModel linear_;
  int budget_ = -1;  // The column.
  std::vector<ChunkColumns> columns_;
  std::vector<Pass> passes_;
  std::vector<SlotEvents> events_;  // By slot, and one more for what comes after the end.
  std::vector<int> durations_;      // Columns by slot.
  int first_back_ = 0;              // The first slot with reloads.
  int last_out_ = -1;               // The last slot with copies out.
};

}  // namespace spillway
