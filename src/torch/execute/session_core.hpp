/// The heart of a session, shared with the hooks of graphs that outlive it; internal.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "plan/profile/pass_calls.hpp"
#include "plan/profile/timeline.hpp"
#include "plan/solve/planning_job.hpp"
#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/limited_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/torch/session.hpp"
#include "spillway/transfer/engine.hpp"
#include "spillway/transfer/windows.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/execute/schedule_follower.hpp"
#include "torch/graph/storage_pin.hpp"
#include "torch/graph/tensor_window.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/hooks/interception.hpp"
#include "torch/record/pass.hpp"
#include "torch/record/session_mutex.hpp"
#include "torch/record/step_clock.hpp"
#include "torch/record/step_time.hpp"
#include "torch/record/step_trace.hpp"
#include "torch/record/storage_watch.hpp"
#include "torch/record/wait_times.hpp"
#include "torch/replay/replay.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

/// Where nobody says how large windows are: while nothing is recorded.
inline constexpr Bytes kWindow{1ULL << 30U};

class SessionCore final : public Interceptor,
                          public CallListener,
                          public std::enable_shared_from_this<SessionCore> {
 public:
  SessionCore(SessionOptions options, std::unique_ptr<TorchDevice> device);
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;
  ~SessionCore();

  void register_fixed(const at::Tensor& tensor, FixedReason reason);

  /// An empty schedule: nobody knows.
  void begin_step(const PassSchedule& schedule);
  void end_step() noexcept;
  void begin_explicit_pass(PassKey key);
  void announce_backward();
  void record_next_step();
  [[nodiscard]] bool next_step_records() const;
  [[nodiscard]] bool next_step_wants_scopes() const;
  void use_plan(Plan plan);
  void verify_next_step();
  void set_shard_group(std::shared_ptr<ShardGroup> group);
  void trace_next_step();

  [[nodiscard]] std::shared_ptr<const Profile> profile() const;
  [[nodiscard]] std::shared_ptr<const Plan> plan() const;
  [[nodiscard]] SessionReport report() const;
  [[nodiscard]] std::shared_ptr<const StepEvents> step_events() const;
  [[nodiscard]] Trace trace() const;

  /// As untimed_wait().
  void stand_aside(const std::function<void()>& wait);

  // What autograd asks for.
  [[nodiscard]] std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor) override;
  [[nodiscard]] at::Tensor unpack(SavedBuffer& buffer, const TensorWindow& window);
  /// Backward wants something of the pass that the caller holds; `id` as for drop().
  void unpack_held(Pass& pass, int id);
  /// One saved tensor of `buffer` is gone; `id` is the buffer's in its pass, for the clock.
  void drop(std::shared_ptr<SavedBuffer> buffer, int id) noexcept;
  /// The same for a tensor that was kept, in a pass that is timed.
  void drop_kept(const std::shared_ptr<Pass>& pass, int id, at::Tensor tensor) noexcept;

  // What the recorder tells.
  int call_begins(const OperatorTraits& traits, c10::ArrayRef<const c10::IValue> inputs) override;
  void call_ended(int call, const std::vector<c10::IValue>& outputs) override;

 private:
  using BufferRef = std::shared_ptr<SavedBuffer>;
  using WeakBuffer = std::weak_ptr<SavedBuffer>;

  /// The session is at work as long as it lives: the clock stands still. Outside of the lock, so
  /// that what the lock frees is gone when the clock runs again.
  class AtWork {
   public:
    explicit AtWork(SessionCore& core) noexcept;
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;
    ~AtWork();

   private:
    SessionCore* core_ = nullptr;  // Null while nothing is timed.
  };

  struct ReloadItem {
    WeakBuffer buffer;
    Bytes bytes;
  };

  /// What is planned for a schedule that is not this step's.
  struct KeptPlan {
    PassSchedule schedule;
    std::shared_ptr<const Plan> plan;  // Null: none fits,
    std::string problem;               // for this reason,
    std::exception_ptr error;          // which nobody was told yet, if it is there.
    bool verified = false;
    std::vector<std::string> demoted;
  };

  // Forward.
  void begin_pass(PassKey key);
  [[nodiscard]] Pass& current_pass();
  [[nodiscard]] FixedReason fixed_reason(const at::Tensor& tensor) const;
  /// The buffer that the value has already. Where a pass saves another tensor than was recorded,
  /// the sites behind it may name one value by two buffers of the plan; a replay makes it for one.
  [[nodiscard]] static BufferRef saved_before(const Pass& pass, const at::Tensor& tensor,
                                              ValueId value);
  [[nodiscard]] BufferRef find_or_add(const at::Tensor& tensor, int id, ActionKind action);
  [[nodiscard]] BufferRef new_buffer(Pass& pass, int id, c10::Storage storage,
                                     const c10::VariableVersion& counter);
  /// By how much a buffer that is saved is larger than it was recorded.
  void note_growth(Pass& pass, int id, std::size_t bytes) const;
  void note_first_save(Pass& pass);
  void diverge(Pass& pass);
  void not_recorded();
  void start_offload(const BufferRef& buffer);
  [[nodiscard]] bool may_stay(SavedBuffer& buffer);
  [[nodiscard]] bool copy_out(SavedBuffer& buffer);
  void copy_what_stayed();
  void note_no_room(std::size_t bytes);
  void set_staying(SavedBuffer& buffer, std::size_t bytes);
  [[nodiscard]] static bool has_allowance(const Pass& pass);
  void release_overdue();
  void release_to_allowance(Pass& pass, std::size_t site);
  void release_popped(const BufferRef& buffer);
  /// Where a pass saves more than was recorded, and the budget has no room for it: what was planned
  /// to be kept leaves, the first saved first, until no more than `allowed` is on the device.
  void make_room(Pass& pass, std::size_t allowed);
  /// Of an allowance: less what the pass has grown by, as what is beside its buffers grows too.
  [[nodiscard]] std::size_t allowed_in(const Pass& pass, std::size_t allowance) const;
  void release(SavedBuffer& buffer);

  // Moments.
  void note_save(Pass& pass, int site);
  void note_site(const std::shared_ptr<Pass>& pass, int id, const at::Tensor& tensor,
                 const BufferRef& buffer);
  void note_call(Pass& pass, MomentKind kind, int call);
  void note_gone(Pass& pass, int id);

  // A traced step.
  void begin_trace();
  void end_trace();
  void keep_trace(bool recorded);
  [[nodiscard]] std::optional<TimeMark> mark_if_traced() noexcept;

  // Recompute, forward.
  [[nodiscard]] const std::string& running_operator() const;
  void attach(const BufferRef& buffer, ValueId value);
  void keep_before_write(const Call& call);
  void keep_if_changed(const Call& call);
  void count_call(Pass& pass, Call& call) const;
  void make_anchors(const Call& call);
  void make_anchor(Pass& pass, const Call& call, std::size_t anchor);
  /// Anchors that a collective made may leave once somebody has waited for them.
  void offload_arrived(const Call& wait);
  void settle_awaited();
  void settle(const BufferRef& buffer);
  void hold_root(ValueId root, RecipeBook& book);
  void release_root(ValueId root, RecipeBook& book);

  // Recompute, backward.
  void expect_replays(Pass& pass);
  [[nodiscard]] at::Tensor remake(SavedBuffer& buffer, const TensorWindow& window);
  [[nodiscard]] at::Tensor verify(std::unique_lock<SessionMutex>& lock, SavedBuffer& buffer,
                                  const TensorWindow& window);
  [[nodiscard]] std::set<Verification::Key> verified_on_the_way(const SavedBuffer& buffer) const;
  void recompute_storage(std::unique_lock<SessionMutex>& lock, SavedBuffer& buffer);
  [[nodiscard]] Replay::Job job_for(SavedBuffer& buffer);
  [[nodiscard]] c10::Storage storage_of(const Value& value);
  void commit(const Replay::Job& job, RecipeBook& book);

  // Backward.
  void drop_locked(BufferRef buffer);
  void leave_book(SavedBuffer& buffer);
  void begin_backward(Pass& pass);
  void remember_tail(const Pass& pass);
  void queue_reloads(Pass& pass);
  void take_from_window(const BufferRef& buffer);
  void queue_next_pass();
  void bring_back(SavedBuffer& buffer);
  void reload_ahead(const Pass& pass);
  [[nodiscard]] std::optional<ReloadItem> next_reload(const Pass& pass);
  void start_reload(SavedBuffer& buffer);
  [[nodiscard]] bool adopt_if_alive(SavedBuffer& buffer);

  // Sharding: what all ranks of the group agree on, forward, backward, and the proof.
  void agree_on_sharding(bool verifies_now);
  void note_no_shard_group();
  [[nodiscard]] std::unique_ptr<ShardGroup::Words> ask(std::initializer_list<std::uint64_t> words);
  void open_for_shards(const std::shared_ptr<Pass>& pass);
  /// Whether the buffer is cut, if all ranks have it. Anything else is done as if it were not to
  /// be.
  [[nodiscard]] bool start_shard(const BufferRef& buffer);
  void answer_shards(Pass& pass, std::size_t unanswered);
  void settle_shard(Pass& pass, const std::shared_ptr<ShardedBuffer>& shard);
  void offload_part(Pass& pass, const std::shared_ptr<ShardedBuffer>& shard);
  void release_part(ShardedBuffer& shard);
  /// The parts of passes whose backward is not near: those of `pass` are used where they are.
  void release_parts_of_others(const Pass& pass);
  void stop_sharding(Pass& pass);
  /// No rank cuts anything of the forward that ran last any more. Before every gather.
  void close_forward();
  void all_gather_buffer(SavedBuffer& buffer);
  void gather_ahead(Pass& pass);
  [[nodiscard]] Pass* next_to_gather() const;
  void begin_first_gather(Pass& pass);
  void begin_due_gathers(Pass& pass, int id);
  void begin_gather(Pass& pass);
  void end_gather(ShardedBuffer& shard);
  void trace_gather(ShardedBuffer& shard);
  void abandon_gather(ShardedBuffer& shard) noexcept;
  void free_part(ShardedBuffer& shard);
  void leave_shard(SavedBuffer& buffer);
  void end_sharding() noexcept;
  /// What of the step's digests is not equal on all ranks; empty: they are of other buffers.
  [[nodiscard]] std::optional<std::set<Verification::Key>> compare_digests();
  void finish_shard_verification();
  void finish_comparison();
  /// By chunk and buffer of the profile: what the planner may shard.
  [[nodiscard]] std::vector<std::vector<bool>> equal_buffers() const;
  /// With a budget and rules that may shard the first rank of the group plans for all.
  [[nodiscard]] bool plans_together() const;
  void remember_plan();
  void share_plan();
  /// All ranks throw what the first one's planner did: one that went on alone would wait for it.
  [[noreturn]] void share_error(std::uint64_t kind);
  /// The first rank's text; all call it.
  [[nodiscard]] std::string send_text(std::string text);
  void lose_shard_group(const std::exception& error);
  [[nodiscard]] std::optional<ShardTotals> shard_report() const;
  [[nodiscard]] ShardModel shard_model() const;

  // A budget.
  void begin_budgeted_step(const PassSchedule& schedule);
  void begin_measuring();
  void end_measuring();
  void plan_for_record(PassSchedule schedule);
  void wait_for_plan();
  void start_planning();
  void forget_planning();
  void take_answer(const PlanningJob::Answer& answer);
  void read_times(bool wait);
  [[nodiscard]] bool have_enough_times() const;
  /// Whether the timed step waited longer for copies than `fresh` explains; mends its link then.
  [[nodiscard]] bool learn_link(Profile& fresh);
  [[nodiscard]] SimulateOptions simulated_as_now() const;
  /// Whether the record that no plan fits may have what later steps have not. True once at most.
  [[nodiscard]] bool may_record_again();
  /// Plans with less, if the last measured step had more than the budget.
  void keep_within_budget();
  void look_at_measured() const;
  [[nodiscard]] BudgetReport budget_report() const;

  // Windows of plans by rules.
  void plan_by_rules(PassSchedule recorded);
  void begin_fitted_step(const PassSchedule& schedule);
  /// Gives plan_ the allowances that suit schedule_.
  void fit_windows();
  /// Takes down in which order passes came, for windows that nobody told a schedule.
  void note_order();

  // A schedule.
  void follow(const Pass& pass, bool backward);
  [[nodiscard]] std::optional<PassKey> next_backward() const;
  [[nodiscard]] PassTail expected_tail(PassKey key) const;
  /// Goes over to the plan for `schedule`, if that is not the one planned for.
  void turn_to(const PassSchedule& schedule);
  void keep_plan();
  void keep_answer(const PlanningJob::Answer& answer);
  void keep(KeptPlan plan);
  [[nodiscard]] bool take_kept_plan();

  // Between steps.
  [[nodiscard]] PassSchedule recorded_schedule(const std::set<int>& chunks) const;
  void finish_recording();
  /// Adds what a later pass had beside saved buffers, if there was one of the same sizes.
  void add_later_pass(ChunkProfile& chunk, Bytes granularity) const;
  [[nodiscard]] const ChunkProfile* recorded_chunk(int number) const;
  [[nodiscard]] std::vector<PassCall> calls_of(const Pass& pass) const;
  void adopt_plan(Plan plan);
  void finish_verification();
  void lay_out();
  [[nodiscard]] static std::shared_ptr<ChunkLayout> layout_of(const ChunkPlan& plan, bool budget);
  void count_fallback(const std::string& reason) { ++fallbacks_[reason]; }
  /// What torch's allocator hands out for `bytes`: what plans count in.
  [[nodiscard]] std::size_t handed_out(std::size_t bytes) const;
  void hold(std::size_t bytes);
  void last_forward_use(std::size_t bytes) { on_device_ -= handed_out(bytes); }

  SessionOptions options_;
  std::unique_ptr<TorchDevice> device_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<HostTier> host_tier_;
  std::unique_ptr<LimitedTier> limited_tier_;
  std::unique_ptr<CountingTier> tier_;
  std::unique_ptr<TransferEngine> engine_;

  mutable SessionMutex mutex_;
  struct Fixed {
    FixedReason reason{};
    StoragePin pin;
  };
  std::unordered_map<const c10::StorageImpl*, Fixed> fixed_;

  bool in_step_ = false;
  std::thread::id thread_;  // That of the step.
  bool recording_ = false;
  bool record_next_ = true;
  bool verifying_ = false;
  bool verify_next_ = false;
  CallRecorder recorder_;
  std::shared_ptr<RecipeBook> book_;  // Of this step; null where nothing is recorded.
  std::vector<CallLocation> places_;  // By call; of a step that is recorded.
  std::vector<CallId> running_calls_;
  std::vector<std::weak_ptr<SavedBuffer>> awaited_;
  Verification verification_;
  std::unique_ptr<ChainRunner> chains_;        // Null: operators are repeated one by one.
  std::vector<std::string> demoted_;           // What was planned to be recomputed and cannot be.
  SessionMutex replay_mutex_;                  // Taken before mutex_.
  std::vector<std::shared_ptr<Pass>> passes_;  // Of this step, in order.
  bool explicit_passes_ = false;
  ScheduleFollower follower_;
  bool backward_announced_ = false;           // Since the last forward began.
  std::vector<PassKey> backward_order_;       // Of this step,
  std::vector<PassKey> last_backward_order_;  // and of the one before: what to expect.

  using Tails = std::vector<std::pair<PassKey, PassTail>>;
  Tails tails_;       // Of this step: what backward found in the window,
  Tails last_tails_;  // and of the one before: what to expect.

  OffloadWindow<WeakBuffer> out_window_;
  ReloadWindow<ReloadItem> reload_window_;

  struct Sharding {
    explicit Sharding(Bytes limit) : window(limit) {}

    std::shared_ptr<ShardGroup> group;
    double speed = 0;  // Of gathers, in bytes a second: the same number on all ranks.
    std::uint64_t digest =
        0;  // Of what all ranks' plans must have in common; 0: it shards nothing.
    std::uint64_t prefetch_window =
        0;                   // In this step: so many bytes are gathered ahead, on all ranks.
    bool on = false;         // In this step,
    bool verifying = false;  // or it is proved what may be.
    bool comparing = false;  // What is saved, for the planner: it is recorded.
    std::set<Verification::Key> equal;  // What was, in the record that was compared.
    bool verified = false;              // Since the plan was adopted.
    std::shared_ptr<Pass> open;         // Whose forward runs.
    OffloadWindow<std::shared_ptr<ShardedBuffer>> window;  // Parts that are copied out.
    std::vector<std::pair<Verification::Key, at::Tensor>> digests;
    std::vector<std::string> mismatched;
    bool warned = false;
  };
  Sharding sharding_;

  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<const Plan> plan_;
  std::unordered_map<int, std::shared_ptr<const ChunkLayout>> layouts_;
  // Ran in the recording step and asked for nothing in backward: an embedding alone in its chunk.
  std::set<int> idle_chunks_;

  // Statistics.
  std::uint64_t steps_ = 0;
  std::uint64_t recorded_steps_ = 0;
  std::size_t on_device_ = 0;  // Managed buffers' bytes on the device now,
  std::size_t saved_ = 0;      // and as many as there would be if all were kept.
  std::size_t staying_ = 0;    // Of these, the ones that are planned to be kept.
  struct StepCounts {
    std::size_t on_device_peak = 0;
    std::size_t saved_peak = 0;
    std::size_t staying_peak = 0;
    Bytes device_peak;
    Bytes bytes_out;
    Bytes bytes_back;
    std::uint64_t used_in_place = 0;
    std::uint64_t late_reloads = 0;
    std::uint64_t repeated_calls = 0;
    std::uint64_t fused_kernels = 0;
    Bytes bytes_recomputed;
    ActionTotals offloads_skipped;
    ShardTotals shard;
  };
  StepCounts step_;
  StepCounts last_step_;
  std::map<std::string, std::uint64_t> fallbacks_;
  bool warned_no_room_ = false;
  mutable WaitTimes waits_;
  StepClock clock_;
  StorageWatch watch_;  // Of a step that is recorded.

  bool trace_next_ = false;
  std::unique_ptr<StepTrace> tracing_;                     // Of this step, if it is traced,
  std::shared_ptr<const StepTrace> traced_;                // and of the last one that was,
  mutable std::shared_ptr<const StepEvents> step_events_;  // once somebody has asked for it.
  mutable std::mutex trace_mutex_;                         // Taken before mutex_.

  struct Budgeting {
    bool waiting = false;      // For the first plan of a record.
    std::exception_ptr error;  // To be thrown by the next step.
    std::string problem;
    bool time_next = false;  // The next step that is not proved is timed.
    bool timing = false;     // This one is,
    bool measuring = false;  // or shows how long and large a step is.
    int refreshed = 0;       // How often timed steps gave the record new times.
    int timed_steps = 0;     // Since the last time.
    bool as_predicted = true;
    bool recorded_again = false;  // Since no plan fitted the first record.
    std::uint64_t waiting_steps = 0;
    std::uint64_t plans = 0;
    std::uint64_t timed_step = 0;         // Counted from 1.
    Bytes reserve;                        // Left of the budget for what the planner cannot know,
    Bytes planned_reserve;                // and when the plan was made that is carried out.
    int corrected = 0;                    // How often that grew.
    std::shared_ptr<const Plan> adopted;  // As it was, of ranks that plan together,
    std::uint64_t adopted_word = 0;       // and a word for it.
    Bytes measured_peak;
    Bytes excess_of_others;  // Above the budget, on ranks that have their plan from this one.
    Bytes verification_peak;
    std::uint64_t above = 0;  // Measured steps with more than the budget.
    Nanoseconds measured_step{};
    std::vector<std::string> drift;
  };
  mutable Budgeting budgeting_;
  struct Fitting {
    bool on = false;     // Nobody gave windows.
    int fits = 0;        // Of this record.
    PassSchedule order;  // Of the last step's passes that had both their parts.
  };
  Fitting fitting_;
  mutable StepTime step_time_;
  Bytes step_start_;                                           // Allocated then.
  std::vector<std::pair<std::shared_ptr<Pass>, bool>> order_;  // Forwards and backwards of a step.
  std::vector<RecordedPass> recorded_passes_;  // Of the record, if there were several.
  PassSchedule schedule_;                      // That plan_ is, or will be, made for.
  PassSchedule recorded_schedule_;
  std::vector<TimedPass> timed_passes_;  // Not read yet,
  std::vector<TimedPass> read_passes_;   // and read, but too few.
  std::vector<KeptPlan> kept_plans_;     // For other schedules than schedule_; the oldest first.
  std::unique_ptr<PlanningJob> job_;
  PassSchedule job_schedule_;
  std::vector<std::unique_ptr<PlanningJob>> old_jobs_;  // Whose answers nobody wants.
};

}  // namespace spillway
