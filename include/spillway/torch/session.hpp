/// Manages the tensors that autograd saves: profiles them, plans by rules or for a budget, and
/// keeps, offloads, recomputes or shards each buffer. Results are equal bit for bit to those
/// without it.
///
///   spillway::Session session({.rules = spillway::load_rules("memory.toml")});
///   session.register_model(*model);
///   for (auto& batch : data) {
///     auto step = session.step();
///     model->forward(batch).backward();
///     step.end();  // Throws if verification finds that gradients are wrong.
///     optimizer.step();
///   }
///   std::cout << session.report();
///
/// Steps: unless a plan is given, the first step records a profile, with every buffer above `small`
/// offloaded, or recomputed, compared and discarded region by region where host memory has no room,
/// so that a model that does not fit can be recorded too. From then on each step executes the plan
/// that the rules make from the profile; the first such step verifies that recomputed buffers have
/// the same bits (docs/recompute.md). With a budget the planner makes the plan instead, on a thread
/// of its own; until it is ready steps do as the first one does.
/// Saved tensors are matched by how they were made, never by size, and not by when they are saved:
/// a layer that is dropped is skipped. A tensor that was not profiled is kept on the device, or
/// offloaded if there is a budget, and counted as a fallback, and the next step records again.
///
/// Not managed: tensors that are not dense and strided, are on another device, or are saved during
/// backward (double backward, a nested checkpoint's second forward), and everything saved under
/// other saved-tensor hooks. Parameters and registered buffers are never moved.
///
/// Threads: a session belongs to the thread that made its step; backward may run on autograd's
/// threads. Different sessions may work on different threads at once. A step may end on another
/// thread: the one that began it goes on without a session. If that thread has ended, the next step
/// ends the old one.
/// Processes: in a child made by fork() a session does nothing: no step is under way, destroying it
/// waits for nothing, and all else throws InvalidArgument.
/// CUDA graphs: while the stream is being captured, everything is left to autograd and counted as a
/// fallback.
/// Lifetime: a graph may outlive its step and its session; its saved buffers live as long as it
/// needs them. A session destroyed in the middle of a step ends the step.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "spillway/core/bytes.hpp"
#include "spillway/plan/budget.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/plan/schedule.hpp"
#include "spillway/torch/scope.hpp"
#include "spillway/torch/session_report.hpp"
#include "spillway/torch/shard_group.hpp"
#include "spillway/trace/trace.hpp"

namespace spillway {

class SessionCore;

struct SessionOptions {
  /// Which action to apply to which buffer. Without rules, plan and budget everything is kept.
  Rules rules;
  /// A plan made earlier; it takes precedence over `rules`, and no step is recorded before it is
  /// executed. Where the model saves other tensors than planned, the pass falls back and the next
  /// step records; if the profile has another structure than the plan, `rules` apply.
  std::optional<Plan> plan;
  /// The most that a step may allocate beyond what is allocated before it. The planner looks for
  /// the fastest plan within it; `rules` fix the actions of what they match and set limits. The
  /// recording step, unplanned steps and steps that are not as profiled are not bound by it; the
  /// report has their peaks. The verification step has the
  /// recomputed buffers of a layer twice; it stays within the budget as long as host memory has
  /// room for the buffers that it offloads instead. After verification one step is timed, or up to
  /// four for later plans. Where times differ from the profiled ones, which were taken while
  /// everything was copied, or where a step is over budget, the session replans, at most three
  /// times for each reason.
  std::optional<Budget> budget;
  /// Plan on another thread while training continues; else at the end of the recording step.
  bool plan_in_background = true;
  /// Time limit of the planner.
  std::chrono::milliseconds planning_time{5000};
  /// The report lists a measured step time or peak that differs from the prediction by more than
  /// this share.
  double drift = 0.1;
  /// Record again and replan after such a step: once, until a step is as predicted again.
  bool replan = false;
  /// Throw whenever no plan is found. Otherwise only until the first plan is executed or the first
  /// error was thrown: from then on training continues under the plan with the smallest peak, even
  /// if that is over the budget, with one warning, and the report counts it as a fallback.
  bool strict = false;
  /// Buffers on this device are managed; by default the first CUDA device, or else the CPU.
  std::optional<at::Device> device;
  /// Smaller buffers are always kept.
  Bytes small{64ULL << 10U};
  /// Host memory for offloaded buffers where neither rules nor plan set a limit; at most this
  /// rank's share of half of what is free on the node, control groups included.
  Bytes host{64ULL << 30U};
  /// How much of it to pin at once, in the background, before the first step needs it. The more is
  /// pinned, the faster the recording step. Of what steps pinned beyond that, the session gives
  /// back what a plan does not need, after a few steps of it.
  Bytes prepare;
  /// Offload and prefetch window where neither rules nor plan set them. If nothing sets a window,
  /// plans by rules get the least memory that costs no time, computed from the profile and, once,
  /// from a timed step; 1 GiB each where that is not possible.
  std::optional<Bytes> offload_window;
  std::optional<Bytes> prefetch_window;
  /// Limit on intermediate results that recomputation keeps for reuse, where neither rules nor plan
  /// set it; else 1 GiB. Plans are made and simulated with it.
  std::optional<Bytes> recompute_cache;
  /// On CUDA, repeat consecutive elementwise operators as one kernel, as long as verification finds
  /// the same bits as those of the single operators; else repeat them one by one.
  bool fuse_replays = true;
  /// Experimental: where host memory does not hold what a step without a plan saves, it recomputes,
  /// compares and discards the rest as forward runs. Bits are equal, but plans that follow keep
  /// more than they need.
  bool regions = false;
  /// Time the waits for copies in the first two steps that execute a plan and then in every N-th,
  /// for the report. The host does not wait for that. 0: never.
  int time_waits_every = 32;
  /// Verify every N steps, as by verify_next_step(). 0: only the step after a new plan.
  int verify_every = 0;
  /// The scope whose numbered children are the model's layers ("model.layers"); empty: the scope
  /// with the longest such list.
  std::string layers;
  /// The scopes of a program that is not C++; null: spillway::Scope alone names scopes.
  std::shared_ptr<ScopeSource> scope_source;
};

/// One optimizer step's forward and backward passes; ends when destroyed, but call end() before
/// gradients are used. Move-only.
/// Threads: any, also several at once: whatever comes after the end of the step does nothing.
class Step {
 public:
  /// Names the pass that runs until the next call of pass(): the forward of one model chunk on one
  /// micro-batch; what is allocated from now on belongs to it. Without a call every forward that
  /// follows a backward is the next micro-batch of chunk 0. Backward needs no call.
  void pass(int chunk, int micro_batch);

  /// Announces a backward, before its gradient is received or computed: what is computed until the
  /// next pass() belongs to no forward. It only makes the attribution of memory to passes in a
  /// recording step more exact, which matters with several passes in flight.
  void backward();

  /// Ends the step early; the destructor does nothing then.
  /// Errors: VerificationError if a tensor that was offloaded in this step had other bits than were
  /// saved: its gradients are wrong. The step has ended then. The destructor throws nothing; the
  /// next Session::step() throws it.
  void end();

  Step(Step&& other) noexcept = default;
  Step& operator=(Step&& other) = delete;
  ~Step();

 private:
  friend class Session;
  Step(std::shared_ptr<SessionCore> core, std::uint64_t number)
      : core_(std::move(core)), number_(number) {}

  std::shared_ptr<SessionCore> core_;
  std::uint64_t number_ = 0;  // A step that was ended elsewhere may be followed by another.
};

class Session {
 public:
  /// The first session installs itself in front of this process's autograd engine; other threads
  /// and code outside of steps are not affected.
  /// Errors: InvalidArgument for a device that does not exist; OutOfMemory as Slab.
  explicit Session(SessionOptions options = {});
  /// Rules from a TOML file.
  /// Errors: also as load_rules().
  [[nodiscard]] static Session from_file(const std::filesystem::path& rules);

  Session(Session&&) noexcept = default;
  Session& operator=(Session&&) = delete;
  ~Session();

  /// Registers the storages of parameters and registered buffers. Call again when they were
  /// replaced (moved to another device, loaded again). Works with any torch::nn::Module.
  template <typename Module>
  void register_model(const Module& model) {
    for (const auto& parameter : model.parameters())
      register_fixed(parameter, FixedReason::kParameter);
    for (const auto& buffer : model.buffers())
      register_fixed(buffer, FixedReason::kRegisteredBuffer);
  }
  void register_fixed(const at::Tensor& tensor, FixedReason reason);

  /// Sets the ranks that have the same buffers as this one, for rules with `shard`: each rank keeps
  /// one part of such a buffer, and the parts are all-gathered ahead of its use. Without a group,
  /// or with a group of one rank, it is kept or offloaded whole, and the report says so.
  /// A buffer that is not equal on all ranks is not sharded: the step after a new plan compares
  /// digests, and so do later ones with SessionOptions::verify_every. In each step all ranks first
  /// agree whether they execute the same plan, and in each pass whether they save the same tensors;
  /// where they do not, nothing is sharded (docs/session.md).
  /// Order: every rank sets its group before the same step, and all ranks begin and end the same
  /// steps and passes in the same order; from then on step() waits for the other ranks. So does
  /// this call, which measures the speed of all-gathers.
  /// Errors: InvalidArgument within a step.
  void set_shard_group(std::shared_ptr<ShardGroup> group);

  /// Begins a step on this thread.
  /// Errors: InvalidArgument if this session, or another one on this thread, is within a step;
  /// PlanInfeasible and other errors of the planner before the first plan, or always with
  /// SessionOptions::strict: no step has begun then, and from the next call on everything is
  /// offloaded. If no plan fits the first profile, that is thrown by the step after the recording
  /// step, or by the one after that if it records again; with the planner in the background this
  /// step waits until it is known whether any plan fits. None of these while the stream is being
  /// captured.
  [[nodiscard]] Step step();
  /// Begins a step whose passes will run in the given order, as in a pipeline
  /// (spillway/pipeline/schedule.hpp: passes_of()). Call Step::pass() at the beginning of each
  /// forward, before its input is received or computed. With a schedule
  /// - the session prefetches for the next backward from the first step on;
  /// - the last buffers of a pass whose backward follows at once are kept, and those of other
  /// passes
  ///   are offloaded at once;
  /// - a budget is planned for this order: its passes in flight in warm-up, steady state and
  ///   cool-down, with the same decisions for all micro-batches of a chunk. For another order, such
  ///   as another number of micro-batches, another plan is made, and the last few are cached; until
  ///   it is ready everything is offloaded.
  /// A step whose passes run in another order continues as if no schedule had been given; the
  /// report counts it.
  /// Errors: also InvalidArgument for a schedule that has a pass without its forward or backward,
  /// or one of them twice, or the backward first.
  [[nodiscard]] Step step(const PassSchedule& schedule);

  /// Makes the next step a recording step.
  void record_next_step();
  /// Whether the step that begins next is known to record. It may also turn out when it begins,
  /// with SessionOptions::replan or where no plan fits; Scope::wanted() is right from then on.
  [[nodiscard]] bool next_step_records() const;

  /// Waits for the planner, if it works in the background. The plan is executed from the next step
  /// on.
  /// Errors: InvalidArgument within a step; what the planner found wrong, if the next step would
  /// throw it or would record again because of it.
  void wait_for_plan();

  /// The last step that ended; empty before.
  [[nodiscard]] std::optional<MeasuredStep> last_step() const;

  /// The profile of the last recording step; null before.
  [[nodiscard]] std::shared_ptr<const Profile> profile() const;
  /// The current plan; null before the first one.
  [[nodiscard]] std::shared_ptr<const Plan> plan() const;

  /// Executes `plan` from the next step on, as SessionOptions::plan.
  /// Errors: InvalidArgument within a step, or if a step was recorded and the plan has another
  /// structure.
  void use_plan(Plan plan);

  /// In the next step everything that the plan recomputes is also saved, and compared bit for bit;
  /// buffers that differ are demoted to their fallback. What it offloads is compared by digests, as
  /// in recording steps; see Step::end(). The step after a new plan always verifies.
  void verify_next_step();

  /// Traces the next step, for step_events() and trace(). The host does not wait within the step,
  /// which takes somewhat longer because every operator call is recorded.
  void trace_next_step();

  /// The events of the last traced step: its passes, operators, waits, replays and copies, and the
  /// peak of allocated memory between them, beyond what was allocated before the step. Null before.
  /// Copies of buffers whose graph still lives are missing. Waits until the device has finished the
  /// step.
  /// Errors: DeviceError of a failed device.
  [[nodiscard]] std::shared_ptr<const StepEvents> step_events() const;

  /// The same events as the process "measured", preceded by the simulator's prediction for the plan
  /// of that step as the process "predicted", if there is a profile with times. As JSON:
  /// to_chrome_json().
  /// Errors: InvalidArgument if no step was traced; as step_events().
  [[nodiscard]] Trace trace() const;

  /// Statistics of all steps so far. Waits for the copies of the last timed step, if that has
  /// ended, because their times are not known before; waits for nothing else.
  [[nodiscard]] SessionReport report() const;

 private:
  friend struct SessionInternals;  // For tests.
  std::shared_ptr<SessionCore> core_;
};

}  // namespace spillway
