/// Takes over what autograd saves: records it, plans by rules, and keeps, offloads or recomputes
/// each buffer, with the same bits as without.
///
///   spillway::Session session({.rules = spillway::load_rules("memory.toml")});
///   session.register_model(*model);
///   for (auto& batch : data) {
///     auto step = session.step();
///     model->forward(batch).backward();
///   }
///   std::cout << session.report();
///
/// Steps: without a plan made earlier the first one records, with every buffer above `small`
/// offloaded, so that a model that does not fit records too. From then on the plan that the rules
/// make of the record is carried out; the first such step proves that what is recomputed has the
/// same bits (docs/recompute.md). With a budget the planner makes the plan instead, on a thread of
/// its own; until it is ready every buffer above `small` is offloaded. Buffers are matched by
/// structure, never by size. Where a pass saves something else than what was recorded, the rest of
/// that pass is kept on the device, counted, and the next step records anew.
///
/// Left alone: tensors that are not dense and plain, are on another device, or are saved during
/// backward (double backward, a nested checkpoint's second forward), and everything saved under
/// somebody else's saved-tensor hooks. Parameters and registered buffers are never moved.
///
/// Threads: a session belongs to the thread that made its step; backward may run on autograd's
/// threads. Different sessions may work on different threads at once.
/// Lifetime: a graph may outlive its step and its session; its saved buffers live as long as it
/// needs them. A session destroyed in the middle of a step ends the step.
#pragma once

#include <chrono>
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
#include "spillway/torch/session_report.hpp"
#include "spillway/torch/shard_group.hpp"
#include "spillway/trace/trace.hpp"

namespace spillway {

class SessionCore;

struct SessionOptions {
  /// What to do with which buffer. Without rules and without a plan everything is kept.
  Rules rules;
  /// A plan made earlier; it wins over `rules`, and nothing is recorded before it is carried out.
  /// Where the model saves something else than the plan says, the step falls back, the next one
  /// records anew, and `rules` decide if the record is of another structure.
  std::optional<Plan> plan;
  /// The most a step may have allocated above what is there before it. The planner finds the plan
  /// that is fastest within it; `rules` pin what they match and set limits. The recording step and
  /// those until the plan is ready are not bound by it. The step that proves the plan has what a
  /// layer recomputes twice; it holds the budget as long as host memory has room for what leaves
  /// instead. After the plan was proved one step is timed, or up to four for later plans; where
  /// times differ from those before, which were first taken while everything was copied, or a step
  /// had more than the budget, the plan is made anew, each up to three times.
  std::optional<Budget> budget;
  /// Plan while training goes on; else at the end of the recording step.
  bool plan_in_background = true;
  /// The most the planner may take.
  std::chrono::milliseconds planning_time{5000};
  /// Where the measured time or peak of a step leaves the prediction by more than this share, the
  /// report says so,
  double drift = 0.1;
  /// and, if wanted, the next step records anew and the plan is made of that: once, until a step is
  /// as predicted again.
  bool replan = false;
  /// Buffers on this device are managed; by default the first CUDA device, or else the CPU.
  std::optional<at::Device> device;
  /// Smaller buffers are always kept.
  Bytes small{64ULL << 10U};
  /// Used where neither rules nor plan set a limit: host memory for offloaded buffers (at most half
  /// of what is free), and the two windows below.
  Bytes host{64ULL << 30U};
  /// How much of that to make ready at once, in the background, before the first step wants it. The
  /// more of it is ready, the faster the recording step.
  Bytes prepare;
  /// Without windows from anybody plans by rules get allowances: the least memory that costs no
  /// time, found from the record and, once, from a timed step; a gibibyte each where there are
  /// none.
  std::optional<Bytes> offload_window;
  std::optional<Bytes> prefetch_window;
  /// The most that is held of values which replays made on the way and others will read.
  Bytes recompute_cache{1ULL << 30U};
  /// Repeat elementwise operators that follow each other as one kernel, on CUDA, where its results
  /// are proved to have the bits of the operators one by one; else they are repeated one by one.
  bool fuse_replays = true;
  /// Of the steps that carry out a plan, the first two and then every so-manyth have the waits for
  /// their copies timed, for the report. The host does not wait for that. 0: none.
  int time_waits_every = 32;
  /// Every so-manyth step does what verify_next_step() asks for. 0: only the step after a new plan.
  int verify_every = 0;
  /// The scope whose numbered members are the model's layers ("model.layers"); empty: the longest
  /// such list.
  std::string layers;
};

/// One optimizer step's forward and backward passes; ends when destroyed. Move-only.
class Step {
 public:
  /// Names the pass that runs until the next call of pass(): the forward of one model chunk on one
  /// micro-batch; what is allocated from now on is its own. Without it every forward that follows a
  /// backward is the next micro-batch of chunk 0. Backward needs no call: saved buffers know it.
  void pass(int chunk, int micro_batch);

  /// Says that a backward comes next, before its gradient is received or made: what is computed
  /// until the next pass() belongs to no forward. Nothing depends on it but how exactly a recording
  /// step can tell whose memory is whose, which matters with several passes in flight.
  void backward();

  /// Ends the step early; the destructor does nothing then.
  void end() noexcept;

  Step(Step&& other) noexcept = default;
  Step& operator=(Step&& other) = delete;
  ~Step() { end(); }

 private:
  friend class Session;
  explicit Step(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}

  std::shared_ptr<SessionCore> core_;
};

class Session {
 public:
  /// Takes over torch's saving of tensors in this process, once; other threads and code outside of
  /// steps are not affected.
  /// Errors: InvalidArgument for a device that is not there; OutOfMemory as Slab.
  explicit Session(SessionOptions options = {});
  /// Rules from a TOML file.
  /// Errors: also as load_rules().
  [[nodiscard]] static Session from_file(const std::filesystem::path& rules);

  Session(Session&&) noexcept = default;
  Session& operator=(Session&&) = delete;
  ~Session();

  /// Tells which storages are parameters and registered buffers. Call again when they were replaced
  /// (moved to another device, loaded anew). Works with any torch::nn::Module.
  template <typename Module>
  void register_model(const Module& model) {
    for (const auto& parameter : model.parameters())
      register_fixed(parameter, FixedReason::kParameter);
    for (const auto& buffer : model.buffers())
      register_fixed(buffer, FixedReason::kRegisteredBuffer);
  }
  void register_fixed(const at::Tensor& tensor, FixedReason reason);

  /// The ranks that hold the same buffers as this one, for rules with `shard`: such a buffer is cut
  /// into a part for each of them, and gathered ahead of its use. Without a group, or with one of a
  /// single rank, it is kept or offloaded whole, and the report says so.
  /// What is not equal on all ranks is not sharded: the step after a new plan compares digests, and
  /// later ones do with SessionOptions::verify_every. In each step all ranks agree first whether
  /// they carry out the same plan, and in each pass whether they save the same; where they do not,
  /// nothing is sharded. (docs/session.md)
  /// Order: every rank gives its session a group before the same step, and all begin and end the
  /// same steps and passes in the same order; from then on step() waits for the others. So does
  /// this call, which measures how fast they gather.
  /// Errors: InvalidArgument within a step.
  void set_shard_group(std::shared_ptr<ShardGroup> group);

  /// Begins a step on this thread.
  /// Errors: InvalidArgument if this session, or another one on this thread, is within a step;
  /// PlanInfeasible and whatever else the planner says of a budget, once: no step has begun then,
  /// and from the next call on everything is offloaded.
  [[nodiscard]] Step step();
  /// The same, and tells in which order this rank's passes will run, as a pipeline does
  /// (spillway/pipeline/schedule.hpp: passes_of()). Call Step::pass() at the beginning of each
  /// forward, before what it starts from is received or made. What it is good for:
  /// - reloads run ahead for the backward that comes next, from the first step on;
  /// - the last buffers of a pass whose backward follows at once stay, and those of others leave at
  ///   once;
  /// - with a budget the plan is made for this very order: its passes in flight in warm-up, steady
  ///   state and cool-down, the same decision for all micro-batches of a chunk. For another order
  ///   than before, such as another number of micro-batches, another plan is made, and the last few
  ///   are remembered; until it is ready everything is offloaded.
  /// A step whose passes come in another order goes on as if nothing had been told; the report
  /// counts it.
  /// Errors: also InvalidArgument for a schedule that has a pass without its forward or backward,
  /// or one of them twice, or the backward first.
  [[nodiscard]] Step step(const PassSchedule& schedule);

  /// The next step records anew.
  void record_next_step();
  /// Whether the step that begins next records.
  [[nodiscard]] bool next_step_records() const;
  /// Whether scopes are wanted in it: it records, or is traced.
  [[nodiscard]] bool next_step_wants_scopes() const;

  /// What the last recording step showed; null before.
  [[nodiscard]] std::shared_ptr<const Profile> profile() const;
  /// The plan that is carried out; null before the first one.
  [[nodiscard]] std::shared_ptr<const Plan> plan() const;

  /// Carries out `plan` from the next step on, as SessionOptions::plan.
  /// Errors: InvalidArgument if a step was recorded and the plan is of another structure.
  void use_plan(Plan plan);

  /// In the next step everything that the plan recomputes is also saved, and compared bit by bit;
  /// what differs is not recomputed any more. The step after a new plan does so by itself.
  void verify_next_step();

  /// The next step marks what its streams do, and when, for step_events() and trace(). The host
  /// waits for nothing within the step, which takes somewhat longer: every operator call is noted.
  void trace_next_step();

  /// What the last traced step did: its passes, operators, waits, replays and copies, and the most
  /// that was allocated from each moment on, above what was there before the step. Null before.
  /// Buffers whose graph still lives have no copies in it. Waits until the device is done with the
  /// step. Errors: DeviceError of a failed device.
  [[nodiscard]] std::shared_ptr<const StepEvents> step_events() const;

  /// The same as the process "measured", and before it as "predicted" what the simulator says of
  /// the plan that the step carried out, if there is a profile with times. As JSON:
  /// to_chrome_json().
  /// Errors: InvalidArgument if no step was traced; as step_events().
  [[nodiscard]] Trace trace() const;

  /// What happened so far. Waits for the copies of the last timed step, if that has ended, and for
  /// nothing else: the device must have come that far to tell how long it stood still.
  [[nodiscard]] SessionReport report() const;

 private:
  std::shared_ptr<SessionCore> core_;
};

}  // namespace spillway
