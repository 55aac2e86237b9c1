/// The implementation of a session, shared with the hooks of graphs that outlive it; internal.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "plan/control/plan_controller.hpp"
#include "plan/profile/call_key.hpp"
#include "plan/profile/timeline.hpp"
#include "spillway/core/process.hpp"
#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/limited_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/torch/session.hpp"
#include "spillway/transfer/engine.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/execute/copy_verification.hpp"
#include "torch/execute/never_moved.hpp"
#include "torch/execute/recipe.hpp"
#include "torch/execute/recipe_trust.hpp"
#include "torch/execute/region_recorder.hpp"
#include "torch/execute/schedule_follower.hpp"
#include "torch/execute/shard_coordinator.hpp"
#include "torch/execute/site_match.hpp"
#include "torch/execute/stream_order.hpp"
#include "torch/execute/torch_port.hpp"
#include "torch/graph/fixed_storages.hpp"
#include "torch/graph/tensor_window.hpp"
#include "torch/graph/weight_numbers.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/hooks/interception.hpp"
#include "torch/hooks/step_thread.hpp"
#include "torch/ranks/collective_agreement.hpp"
#include "torch/ranks/shared_plan.hpp"
#include "torch/record/event_log.hpp"
#include "torch/record/freed_weights.hpp"
#include "torch/record/pass.hpp"
#include "torch/record/pass_moments.hpp"
#include "torch/record/session_mutex.hpp"
#include "torch/record/step_counts.hpp"
#include "torch/record/step_events.hpp"
#include "torch/record/storage_watch.hpp"
#include "torch/record/wait_times.hpp"
#include "torch/replay/moved_roots.hpp"
#include "torch/replay/replay.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

class SessionCore final : public Interceptor,
                          public CallListener,
                          private ControlledSession,
                          private ShardCoordinator::Host,
                          public std::enable_shared_from_this<SessionCore> {
 public:
  SessionCore(SessionOptions options, std::unique_ptr<TorchDevice> device);
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;
  ~SessionCore();

  void register_fixed(const at::Tensor& tensor, FixedReason reason);

  /// Whether this is the process that made the session. In a child made by fork() only what says so
  /// may be called: locks may be held there for ever, and there are no threads.
  [[nodiscard]] bool in_its_process() const noexcept { return process_.is_current(); }

  /// Names a step, so that who ends it cannot end a later one. 0: no step.
  using StepNumber = std::uint64_t;

  /// An empty schedule: the order of passes is unknown. 0 while the stream is being captured: what
  /// runs then is autograd's alone.
  StepNumber begin_step(const PassSchedule& schedule);
  /// From any thread; nothing if it has ended already. In a child of fork(): nothing.
  void end_step(StepNumber number) noexcept;
  /// The step that is under way, if any. As end_step().
  void end_any_step() noexcept;
  /// Throws what went wrong in the last step and could not be thrown before its end; once. In a
  /// child of fork(): nothing.
  void throw_step_error();
  /// The same, if no other step has ended since the one with that number.
  void throw_error_of(StepNumber number);
  /// Nothing if the step has ended. In a child of fork(): nothing.
  void begin_explicit_pass(StepNumber number, PassKey key);
  void announce_backward(StepNumber number);
  void record_next_step();
  [[nodiscard]] bool next_step_records() const;
  void wait_for_plan();
  [[nodiscard]] std::optional<MeasuredStep> last_step() const;
  void use_plan(Plan plan);
  void verify_next_step();
  void set_shard_group(std::shared_ptr<ShardGroup> group);
  void trace_next_step();

  [[nodiscard]] std::shared_ptr<const Profile> profile() const;
  [[nodiscard]] std::shared_ptr<const Plan> plan() const;
  [[nodiscard]] SessionReport report();
  [[nodiscard]] std::shared_ptr<const StepEvents> step_events() const;
  [[nodiscard]] Trace trace() const;

  /// Writes the engine's commands to `log` from here on; null: no more.
  void log_commands(CommandLog* log) {
    const std::lock_guard lock(mutex_);
    machine_.log_to(log);
  }

  /// As untimed_wait().
  void wait_untimed(const std::function<void()>& wait);

  // Called by autograd.
  [[nodiscard]] std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor) override;
  [[nodiscard]] at::Tensor unpack(SavedBuffer& buffer, const TensorWindow& window);
  /// Backward reads a caller-owned buffer of the pass; `id` as for drop().
  void unpack_caller_owned(Pass& pass, int id);
  /// One saved tensor of `buffer` was freed; `id` is the buffer's in its pass, in a timed pass.
  void drop(std::shared_ptr<SavedBuffer> buffer, int id) noexcept;
  /// The same for a tensor that was kept, in a pass that is timed.
  void drop_kept(const std::shared_ptr<Pass>& pass, int id, at::Tensor tensor) noexcept;

  // Called by the recorder.
  int call_begins(const OperatorTraits& traits, c10::ArrayRef<const c10::IValue> inputs) override;
  void call_ended(int call, const std::vector<c10::IValue>& outputs) override;
  void call_failed(const char* name, const std::exception_ptr& error) noexcept override;

 private:
  friend class TorchPort;  // It carries out what the engine decides, on what the session has.
  friend class RegionRecorder;

  using BufferRef = std::shared_ptr<SavedBuffer>;
  using WeakBuffer = std::weak_ptr<SavedBuffer>;

  /// Pauses the timing of compute while it lives: what runs meanwhile is the session's own work.
  /// Made before the lock is taken, so that storages freed at unlock are gone when it resumes.
  class ComputePause {
   public:
    explicit ComputePause(SessionCore& core) noexcept;
    ComputePause(const ComputePause&) = delete;
    ComputePause& operator=(const ComputePause&) = delete;
    ~ComputePause();

   private:
    SessionCore* core_ = nullptr;  // Null while nothing is timed.
    std::uint64_t step_ = 0;
  };

  // A step, its thread, and streams that are being captured.
  [[nodiscard]] bool in_step() const noexcept { return step_thread_ != nullptr; }
  /// Whether this thread is in a step of this session.
  [[nodiscard]] bool runs_here() const noexcept { return in_step() && step_thread_->is_here(); }
  [[nodiscard]] bool is_step(StepNumber number) const noexcept {
    return in_step() && step_thread_->number() == number;
  }
  /// The second half of begin_step(), which may throw.
  [[nodiscard]] StepNumber start_step(const PassSchedule& schedule);
  /// Of a step that could not begin or end as it should.
  void stop_measuring() noexcept;
  void await_end_of_thread();
  void end_step_locked() noexcept;
  void note_capture();
  [[nodiscard]] at::Tensor unpack_captured(SavedBuffer& buffer, const TensorWindow& window);
  void drop_deferred();

  // Forward.
  void begin_pass(PassKey key);
  [[nodiscard]] Pass& current_pass();
  [[nodiscard]] FixedReason fixed_reason(const at::Tensor& tensor) const;
  /// The buffer that already has the value. Where a pass saves another tensor than was profiled,
  /// later sites may name one value by two buffers of the plan; a replay recomputes only one.
  [[nodiscard]] static BufferRef saved_before(const Pass& pass, const at::Tensor& tensor,
                                              ValueId value);
  [[nodiscard]] BufferRef find_or_add(const at::Tensor& tensor, int id, ActionKind action,
                                      Signature signature);
  /// Does with a new buffer what is planned.
  void begin_action(const BufferRef& buffer, ActionKind action);
  /// A tensor could not be saved: its buffer goes, unless another tensor has it.
  void drop_unsaved(BufferRef buffer) noexcept;
  [[nodiscard]] BufferRef new_buffer(Pass& pass, int id, c10::Storage storage,
                                     const c10::VariableVersion& counter);
  /// Reserves of the cap by how much a saved buffer is larger than profiled: untracked bytes grow
  /// with buffers.
  void note_growth(Pass& pass, int id, std::size_t bytes) const;
  void note_first_save(Pass& pass);
  void note_unrecorded_chunk();
  void start_offload(const BufferRef& buffer) override;
  void set_kept_bytes(SavedBuffer& buffer, std::size_t bytes) override;

  // Memory that others own.
  /// The owner of the original has freed or replaced its memory: from here on the session does what
  /// autograd does, which is to hold the storage and to read what it has. Precondition: the storage
  /// is the original.
  void return_to_owner(SavedBuffer& buffer);
  /// The owner of a value's memory freed or replaced it: replays never start from such values, but
  /// where ranks repeat collectives together.
  void note_moved(RecipeBook& book, ValueId id);
  /// Notes it of what a call has made, if it was found in an earlier step.
  void note_known_movers(const Call& call);
  /// Notes it of what moved in this recording step.
  void note_moved_while_recording();
  /// From the next step on the buffer is kept, whatever plans say.
  void never_move(Pass& pass, int id, const std::string& reason);
  void demote_owned_elsewhere();
  [[nodiscard]] bool amend(Plan& plan) const override { return never_moved_.amend(plan); }

  // Verification of offloaded copies.
  /// In a step that checks copies: what is saved of the buffer now, too, has to come back.
  void check_saved(SavedBuffer& buffer, const at::Tensor& tensor);
  /// Before the buffer is moved: digests of what was saved of it so far.
  void digest_saved(SavedBuffer& buffer);
  /// Digests of what was released, and lets it go. If nobody else holds it any more, these are its
  /// last bits: autograd would have read them.
  void digest_sources(std::unique_lock<SessionMutex>& lock,
                      std::vector<CopySources::Source> sources);
  /// Compares what was saved with what came back and, if that was looked at, with what the original
  /// was at its release: had autograd held it, that is what it would read.
  void check_copy(const SavedBuffer& buffer);
  /// Waits for the comparisons of the step; what differs is never moved again.
  [[nodiscard]] std::vector<CopyChecks::Failure> read_copy_checks();
  /// Sets step_error_ if there are failures.
  void report_copies(const std::vector<CopyChecks::Failure>& failures);

  // Matching what a pass saves with what was profiled.
  struct PlannedSave {
    std::size_t site = 0;  // The last one that was found.
    int id = -1;           // Of its buffer; -1: it is at no site.
    ActionKind action = ActionKind::kKeep;
  };
  [[nodiscard]] PlannedSave decision_for(Pass& pass, const at::Tensor& tensor, FixedReason fixed,
                                         ValueId value, const std::string& scope,
                                         Signature signature);
  void note_unknown_save(Pass& pass);
  /// What the passes of a step that has ended say about the plan.
  void check_matches();
  void note_skipped_sites(int chunk);

  // Moments.
  void note_moment(Pass& pass, MomentKind kind, int index, int detail = -1);
  void note_site(const std::shared_ptr<Pass>& pass, int id, const at::Tensor& tensor,
                 const BufferRef& buffer);
  void note_call(Pass& pass, MomentKind kind, int call, int name = -1);
  void note_gone(Pass& pass, int id);

  // A traced step.
  /// Where its times count from; empty in a step that is not traced.
  [[nodiscard]] std::optional<TimeMark> begin_trace();
  /// Null if the step was not traced.
  [[nodiscard]] std::shared_ptr<TracedStep> end_trace(std::shared_ptr<const StepLog> log) const;

  // Recompute, forward.
  [[nodiscard]] const std::string& running_operator() const;
  [[nodiscard]] CallId running_call() const {
    return running_calls_.empty() ? -1 : running_calls_.back();
  }
  void attach(const BufferRef& buffer, ValueId value);
  /// Waits while a replay that runs may read what the call writes. False: the step has ended.
  [[nodiscard]] bool await_replay(std::unique_lock<SessionMutex>& lock, CallId call);
  void copy_before_write(const Call& call);
  void keep_if_changed(const Call& call);
  void count_call(Pass& pass, Call& call) const;
  void make_anchors(const Call& call);
  void make_anchor(Pass& pass, const Call& call, std::size_t anchor);
  /// Offloads anchors made by a collective once the program has waited for them.
  void offload_completed(const Call& wait);
  void settle_awaited();
  void settle(const BufferRef& buffer);
  /// What verification said about the recipe: if nothing, the buffer is verified now; if it must
  /// not be used, `recipe` gets a problem.
  void require_trust(const BufferRef& buffer, Recipe& recipe);
  /// `recipe` gets a problem where a replay may find a weight without memory.
  void require_weights(const SavedBuffer& buffer, Recipe& recipe) const;
  /// Notes which weights of a pass have no memory now.
  void look_for_freed_weights(const Pass& pass, FreedWeights::At at);
  void hold_root(ValueId root, RecipeBook& book);
  void release_root(ValueId root, RecipeBook& book);

  // Recompute, backward.
  void expect_replays(Pass& pass);
  [[nodiscard]] at::Tensor recompute(SavedBuffer& buffer, const TensorWindow& window);
  [[nodiscard]] at::Tensor verify(std::unique_lock<SessionMutex>& lock, SavedBuffer& buffer,
                                  const TensorWindow& window);
  [[nodiscard]] std::set<Verification::Key> verified_inputs(const SavedBuffer& buffer) const;
  void recompute_storage(std::unique_lock<SessionMutex>& lock, SavedBuffer& buffer);
  [[nodiscard]] Replay::Job job_for(SavedBuffer& buffer);
  /// Finds what the job's calls read and do not make.
  void add_inputs(Replay::Job& job, const RecipeBook& book);
  /// The limit on values that replays keep for later ones.
  [[nodiscard]] Bytes recompute_cache() const;
  [[nodiscard]] c10::Storage storage_of(const Value& value);
  /// The calls that recompute the buffer from what is still where it was.
  void find_calls(SavedBuffer& buffer, Replay::Job& job);
  /// Notes which values that the job's calls read have moved. Returns whether any have.
  [[nodiscard]] bool find_moved(RecipeBook& book, const Replay::Job& job);
  /// Whether a replay that reads the value now finds its memory elsewhere.
  [[nodiscard]] bool is_moved(const Value& value);
  /// Of a job that recomputes what has moved. Errors: a call cannot be repeated.
  void require_repeatable(const SavedBuffer& buffer, const RecipeBook& book,
                          const Replay::Job& job);
  /// Errors: what a job of `wanted` reads has moved, and nothing recomputes it.
  void require_unmoved(const SavedBuffer& wanted, ValueId value);
  /// From the next step on nothing is recomputed by recipes that start from the value.
  [[noreturn]] void lose_root(const SavedBuffer& wanted, ValueId root);
  /// What the job recomputed of moved values has to be what their owners put back.
  void expect_as_put_back(const RecipeBook& book, const Replay::Job& job);
  void compare_with_owners();
  /// At the end of a step: sets step_error_ if an owner put back something else, or nothing.
  void report_moved_roots();
  /// Gives buffers what was recomputed; `wanted` is the one for which it was.
  void commit(const Replay::Job& job, RecipeBook& book, SavedBuffer& wanted);
  void free_outside(std::vector<c10::Storage> garbage);

  // Backward.
  void drop_locked(BufferRef buffer);
  void detach_from_book(SavedBuffer& buffer);
  void begin_backward(Pass& pass);
  /// After the unpack of buffer `id`.
  void prefetch(Pass& pass, int id);

  // What all ranks agree on.
  void agree_on_collectives();
  void agree_on_sharding(bool verifies_now);
  void end_sharding() noexcept;
  /// With a budget and rules that may shard, the first rank of the group plans for all.
  [[nodiscard]] bool plans_together() const;
  void remember_plan();
  void share_plan();
  [[nodiscard]] ShardModel shard_model() const override { return sharding_.model(); }

  // What the plan controller needs, and what it gets.
  void plan_adopted() override;
  void plan_revised() override;
  void count_fallback(const std::string& reason) override { ++fallbacks_[reason]; }
  void note_failure(const char* where) noexcept override;
  void warn(const std::string& text) override;
  [[nodiscard]] PlanningConditions conditions() const override;
  [[nodiscard]] PlanningRanks ranks() const override;
  [[nodiscard]] Bytes allocated() const override;
  [[nodiscard]] bool have_times_happened() override;
  [[nodiscard]] bool resolve_times() override;
  [[nodiscard]] std::optional<CopyWaits> copy_waits(std::uint64_t step) override;
  [[nodiscard]] std::optional<Nanoseconds> take_step_time() override;
  /// `epoch`: of a traced step.
  void begin_log(std::optional<TimeMark> epoch);
  /// `complete`: the step ran all forwards of its schedule.
  void end_measuring(bool complete, const std::shared_ptr<const StepLog>& log);
  /// Whether the passes of this step saved what the plan's profile has, in the announced order.
  [[nodiscard]] bool is_as_profiled(bool complete) const;
  /// After each step: gives host memory back that the plan does not need, once its steps have
  /// shown how much that is, and tries again to pin what could not be pinned.
  void settle_host_memory(const StepTask& task);

  // Residency lists.
  /// After a recording step.
  void begin_fitting();
  void begin_fitted_step(const PassSchedule& schedule);
  /// The lists of a plan by rules, under the windows that are given or those that fit best.
  void fit_lists(Plan& plan);
  void renew_lists() override;
  /// Notes in which order passes ran, to fit windows where no schedule was given.
  void note_order();

  // A schedule.
  void follow(const Pass& pass, bool backward);
  [[nodiscard]] std::optional<PassKey> next_backward() const;

  // Between steps.
  void close_step();
  [[nodiscard]] PassSchedule recorded_schedule(const std::set<int>& chunks) const;
  void finish_recording(const StepLog& log);
  /// Of a step with several passes: those that are complete.
  [[nodiscard]] std::vector<RecordedPass> recorded_passes(const Profile& profile,
                                                          const PassSchedule& schedule,
                                                          const StepMoments& moments) const;
  /// Adds the untracked bytes of a later pass with the same sizes, if there was one.
  void add_later_pass(ChunkProfile& chunk, const StepMoments& moments, Bytes granularity) const;
  [[nodiscard]] const ChunkProfile* recorded_chunk(int number) const;
  [[nodiscard]] std::vector<CallKey> calls_of(const Pass& pass) const;
  void finish_verification();
  void lay_out();
  void set_engine_limits(const Limits& limits);

  SessionOptions options_;
  std::unique_ptr<TorchDevice> device_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<HostTier> host_tier_;
  std::unique_ptr<LimitedTier> limited_tier_;
  std::unique_ptr<CountingTier> tier_;
  std::unique_ptr<TransferEngine> engine_;
  StreamOrder streams_;
  CopyVerification copies_;

  mutable SessionMutex mutex_;
  FixedStorages fixed_;

  ProcessId process_ = ProcessId::current();
  std::shared_ptr<StepThread> step_thread_;  // Of the step that is under way; null: none.
  StepNumber last_ended_ = 0;
  PlanController controller_;
  CurrentPlan& current_ = controller_.current();
  const StepTask& task_ = controller_.step();
  NeverMoved never_moved_;
  WeightNumbers weight_numbers_;
  FreedWeights freed_weights_;
  MovedRoots moved_roots_;
  std::exception_ptr step_error_;             // Thrown by Step::end(), or by the next begin_step().
  std::shared_ptr<RecipeBook> book_;          // Of this step; null where nothing is recorded.
  std::vector<CallLocation> call_locations_;  // By call; in a recording step.
  std::vector<CallId> running_calls_;
  std::vector<std::weak_ptr<SavedBuffer>> awaited_;
  RecipeTrust recipes_;
  std::shared_ptr<ChainRunner> chains_;        // Null: operators are repeated one by one.
  SessionMutex replay_mutex_;                  // Taken before mutex_.
  bool replaying_ = false;                     // A replay runs, without mutex_.
  std::vector<std::shared_ptr<Pass>> passes_;  // Of this step, in order.
  bool explicit_passes_ = false;
  ScheduleFollower follower_;
  bool backward_announced_ = false;           // Since the last forward began.
  std::vector<PassKey> backward_order_;       // Of this step.
  std::vector<PassKey> last_backward_order_;  // Of the previous step; expected in this one too.

  TorchPort port_{*this};
  StepMachine<TorchPort>& machine_ = port_.machine();
  ShardMachine<TorchPort>& shards_ = port_.shards();
  RegionRecorder regions_{*this};

  SharedPlan shared_plan_;
  CollectiveAgreement collectives_;

  SkippedSites skipped_;
  std::unordered_map<int, std::shared_ptr<const ChunkLayout>> layouts_;
  // Ran in the recording step without reading anything in backward, as a single embedding does.
  std::set<int> idle_chunks_;

  // Statistics.
  std::uint64_t recorded_steps_ = 0;
  std::size_t saved_ = 0;       // The same if all saved buffers were kept.
  std::size_t kept_bytes_ = 0;  // Bytes of saved buffers that are planned to be kept.
  StepCounts step_;
  StepCounts last_step_;  // Of the last one that did not record.
  ShardCoordinator sharding_{{*this, *device_, shards_, streams_, mutex_, step_.shard}};
  std::optional<MeasuredStep> measured_;
  std::map<std::string, std::uint64_t> fallbacks_;
  bool warned_capture_ = false;
  std::vector<std::pair<BufferRef, int>> deferred_drops_;  // While a stream was being captured.
  EventLog log_;
  WaitTimes waits_;
  StorageWatch watch_;  // In a recording step.
  // Logs of steps that the device may not have finished yet.
  std::shared_ptr<const StepLog> unread_step_;  // For the time of the step.
  struct UnreadTimes {
    std::shared_ptr<const StepLog> log;
    std::shared_ptr<StepMoments> moments;  // Whose times are filled in.
  };
  std::vector<UnreadTimes> unread_times_;  // For the times of passes; in the order of steps.

  std::shared_ptr<const TracedStep> traced_;               // The last one.
  mutable std::shared_ptr<const StepEvents> step_events_;  // Read from traced_ on request.
  mutable std::mutex trace_mutex_;                         // Taken before mutex_.

  struct Fitting {
    bool enabled = false;  // The plan is made by rules.
    Limits windows;        // Those that rules and options give.
    int fits = 0;          // Since the last recording step.
    PassSchedule order;    // Of the last step's passes that had a forward and a backward.
  };
  Fitting fitting_;
  Bytes step_start_;                                           // Allocated when the step began.
  std::vector<std::pair<std::shared_ptr<Pass>, bool>> order_;  // Forwards and backwards of a step.
};

}  // namespace spillway
