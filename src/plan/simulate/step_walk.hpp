/// Simulates a step of a session under a plan in the order of the host: saves, copies, releases,
/// replays, reloads, drops, and the memory they take. That order, and so the memory, does not
/// depend on time; listeners add times.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "plan/simulate/planned_chunk.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// A position in a step: a moment of a pass.
struct StepPosition {
  int pass = 0;   ///< In the order of their forwards.
  int chunk = 0;  ///< Its index in the profile.
  bool backward = false;
  int moment = 0;
};

/// An item of a pass.
struct ItemRef {
  int pass = 0;
  int item = 0;
};

class StepWalk;

/// Receives the events of a step in order.
class StepListener {
 public:
  virtual ~StepListener() = default;

  /// The device computes from the moment before to this one, with at most `bytes` allocated.
  virtual void computes(const StepPosition& /*position*/, std::int64_t /*ns*/,
                        std::int64_t /*bytes*/) {}
  /// Calls are repeated, with at most `bytes` allocated meanwhile.
  virtual void repeats(const StepPosition& /*position*/, const ReplayJob& /*job*/,
                       std::int64_t /*bytes*/) {}
  virtual void copies_out(const StepPosition& /*position*/, ItemRef /*what*/,
                          std::int64_t /*bytes*/) {}
  /// Compute waits for the copy out; the memory is free.
  virtual void releases(const StepPosition& /*position*/, ItemRef /*what*/) {}
  /// A copied-out item was used without a reload and is released. Compute waits for the copy,
  /// unless it has not been queued.
  virtual void gives_up(const StepPosition& /*position*/, ItemRef /*what*/) {}
  virtual void copies_back(const StepPosition& /*position*/, ItemRef /*what*/,
                           std::int64_t /*bytes*/) {}
  /// Compute waits for the copy back.
  virtual void fetches(const StepPosition& /*position*/, ItemRef /*what*/) {}
  /// The all-gather begins, after the reload of this rank's part if that was `away`.
  virtual void gathers(const StepPosition& /*position*/, ItemRef /*what*/, bool /*away*/) {}
  /// Compute waits for the all-gather.
  virtual void has_gathered(const StepPosition& /*position*/, ItemRef /*what*/) {}
  /// Groups of small copies that are still open are queued.
  virtual void hands_over() {}
  /// A site was saved. Returns the limit on the managed bytes, if it overrides the plan's.
  virtual std::optional<std::int64_t> saved(const StepWalk& /*walk*/,
                                            const StepPosition& /*position*/, int /*site*/) {
    return std::nullopt;
  }
  /// The unpacked item is available; `fetched` bytes of it had to be copied back now. Returns the
  /// limit on the managed bytes, prefetched ones included, as above.
  virtual std::optional<std::int64_t> unpacked(const StepWalk& /*walk*/,
                                               const StepPosition& /*position*/, int /*unpack*/,
                                               std::int64_t /*fetched*/) {
    return std::nullopt;
  }
};

/// The limits that apply where the plan has no allowances, in bytes.
struct StepLimits {
  std::int64_t offload_window = 0;
  std::int64_t prefetch_window = 0;
  std::int64_t host = 0;
  bool windows = true;  ///< False: only the listener limits managed bytes.
  /// As Plan has them, besides allowances.
  std::optional<std::int64_t> max_pending_release = {};
  std::optional<std::int64_t> max_prefetch = {};
  /// The windows for sharded buffers, which allowances do not change.
  std::int64_t shard_offload_window = 0;
  std::int64_t shard_prefetch_window = 0;

  void set_shard_windows(const Limits& limits);
};

/// As SessionOptions has them.
inline constexpr Bytes kDefaultWindow{1ULL << 30U};

class StepWalk {
 public:
  /// By pass: how many of its copies out are queued; the rest of what it offloads is still on the
  /// device when its backward begins, and is kept. (Sessions know that from the step before.)
  using Tails = std::vector<int>;

  /// Keeps references. `tails` may be empty: everything is copied out.
  StepWalk(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
           const StepLimits& limits, StepListener& listener, Tails tails);

  void run();

  /// Bytes on the device, above what was there before the step, if `other` are those of the piece.
  [[nodiscard]] std::int64_t bytes_with(std::int64_t other) const {
    return other + base_bytes_ + managed_bytes_ + hidden_bytes_ + cached_bytes_;
  }
  /// Bytes of managed items on the device.
  [[nodiscard]] std::int64_t managed_bytes() const noexcept { return managed_bytes_; }
  /// Whether a buffer was kept because host memory was full.
  [[nodiscard]] bool found_no_room() const noexcept { return found_no_room_; }
  [[nodiscard]] std::int64_t host_peak() const noexcept { return host_peak_; }
  [[nodiscard]] std::int64_t bytes_out() const noexcept { return bytes_out_; }
  [[nodiscard]] std::int64_t bytes_back() const noexcept { return bytes_back_; }
  [[nodiscard]] std::int64_t bytes_gathered() const noexcept { return bytes_gathered_; }
  /// After run(): for the constructor of the next step.
  [[nodiscard]] const Tails& tails() const noexcept { return found_tails_; }

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
  [[nodiscard]] bool model_has(ItemRef what) const;
  [[nodiscard]] bool on_device(ItemRef what) const { return state(what).on_device; }
  /// What may be released, oldest first, as long as `look` says true.
  template <typename Look>
  void for_each_in_window(Look&& look) const {
    for (const ItemRef& each : window_) {
      if (state(each).in_window && !look(each)) return;
    }
  }
  [[nodiscard]] const PlannedItem& item(ItemRef what) const {
    const Pass& pass = passes_[static_cast<std::size_t>(what.pass)];
    return chunks_[static_cast<std::size_t>(pass.chunk)].items[static_cast<std::size_t>(what.item)];
  }

 private:
  struct ItemState {
    bool on_device = false;
    bool in_window = false;
    bool copied = false;  // It has host memory.
    bool released = false;
    bool reloading = false;
    bool ready = false;
    bool prefetched = false;
    bool freed = false;
    bool sharded = false;      // This rank has only a part of it.
    bool gathering = false;    // Its all-gather has begun.
    bool whole = false;        // It was all-gathered.
    bool part_here = false;    // Its part is on the device.
    bool part_leaves = false;  // Its part is being copied out.
    signed char hidden = 0;    // Times its bytes in hidden_bytes_.
  };

  /// Where a pass stands in the step.
  struct Part {
    int chunk = 0;
    int backward_begins = 0;
    int forward = 0;   // The offset of its forward moments.
    int backward = 0;  // The offset of its backward moments.
  };

  struct Pass {
    PassStep key;
    int chunk = 0;
    int moment = 0;  // The one it has come to.
    std::vector<ItemState> items;
    std::size_t next_job = 0;
    std::size_t next_cached = 0;
    std::int64_t cached = 0;
    int offloads = 0;
    bool backward_begun = false;
    bool reloads_queued = false;
    bool ended = false;
    std::vector<int> asked;   // Items to shard as soon as the other ranks have answered.
    std::vector<int> shards;  // Sharded items, in the order of all-gathers.
    std::size_t gathers_begun = 0;
    std::size_t gathers_wanted = 0;
  };

  [[nodiscard]] ItemState& state(ItemRef what) {
    return passes_[static_cast<std::size_t>(what.pass)].items[static_cast<std::size_t>(what.item)];
  }
  [[nodiscard]] const ItemState& state(ItemRef what) const {
    return passes_[static_cast<std::size_t>(what.pass)].items[static_cast<std::size_t>(what.item)];
  }
  [[nodiscard]] const PlannedChunk& chunk_of(const Pass& pass) const {
    return chunks_[static_cast<std::size_t>(pass.chunk)];
  }
  void lay_out();
  [[nodiscard]] int find_pass(const PassStep& step) const;
  void find_base();
  void run_part(int first, int last);
  void act();
  void run_events(ItemEventKind first, ItemEventKind last);

  void set_hidden(ItemRef what, int hidden);
  void add_to_device(ItemRef what);
  void remove_from_device(ItemRef what);

  void save(int site);
  void start_offload(ItemRef what);
  void release_oldest();
  void release(ItemRef what);
  void copy_out(ItemRef what);
  void take_from_window(ItemRef what);
  [[nodiscard]] bool has_allowance() const;

  void begin_backward();
  void queue_reloads(int pass);
  void queue_next_pass();
  void unpack(int unpack);
  void make_available(ItemRef what);
  void start_reload(ItemRef what);
  void repeat(const ReplayJob& job);
  void prefetch(std::optional<std::int64_t> most);
  bool start_reloads(std::optional<std::int64_t> most);
  void give_up(ItemRef what);

  void start_shard(ItemRef what);
  void shard_answered(int pass, std::size_t unanswered);
  void offload_part(ItemRef what);
  void release_part(ItemRef what);
  void release_parts_of_others();
  void close_forward();
  void all_gather_buffer(ItemRef what);
  void prefetch_gathers();
  void begin_some_gathers(int pass, std::int64_t& prefetched);
  void begin_first_gather(int pass);
  void begin_due_gathers(ItemRef what);
  void begin_gather(int pass);
  void end_gather(ItemRef what);
  void free_part(ItemRef what);
  [[nodiscard]] int next_backward() const;

  const std::vector<PlannedChunk>& chunks_;
  const PassSchedule& schedule_;
  StepLimits limits_;
  StepListener& listener_;
  Tails tails_;
  Tails found_tails_;

  std::vector<Part> parts_;   // By pass.
  std::vector<Pass> passes_;  // Those that have begun.
  StepPosition now_;
  std::size_t step_ = 0;         // In the schedule.
  std::int64_t base_bytes_ = 0;  // Of passes that do not run.
  // Of the chunk that runs, if it has run before: what it had added by then.
  const std::vector<std::int64_t>* grown_ = nullptr;
  std::int64_t managed_bytes_ = 0;
  // On the device and in neither the managed nor the untracked bytes, less what is in both.
  std::int64_t hidden_bytes_ = 0;
  std::int64_t cached_bytes_ = 0;
  std::deque<ItemRef> window_;  // Some may have been taken out.
  std::int64_t window_bytes_ = 0;
  std::deque<ItemRef> reloads_;
  std::int64_t prefetched_bytes_ = 0;
  std::int64_t fetched_ = 0;  // By the current unpack.
  std::int64_t host_bytes_ = 0;
  bool found_no_room_ = false;
  std::int64_t host_peak_ = 0;
  std::int64_t bytes_out_ = 0;
  std::int64_t bytes_back_ = 0;
  std::int64_t bytes_gathered_ = 0;
  int open_ = -1;                    // The pass whose forward runs, or ran last.
  std::deque<ItemRef> part_window_;  // Parts that are copied out; some may have been taken out.
  std::int64_t part_window_bytes_ = 0;
};

}  // namespace spillway
