/// Runs the stage of a model in the order of a pipeline schedule, with its neighbours.
///
///   PipelineLayer model(llama_layers(shape), with_topology({...}, topology, world->rank()));
///   PipelineRunner runner(model, make_pipeline_groups(*world, topology, model), {});
///   for (;;) {
///     runner.zero_gradients();
///     StepOutcome outcome = runner.train(batches, &session);
///     optimizer.step();
///   }
///
/// Sends and receives do not wait for each other: a message is sent when it is made, and the next
/// receive is posted while this stage computes. Shapes are sent once for each shape of a
/// micro-batch. After train() the gradients are those of the mean loss over all micro-batches of
/// all data ranks, each weighed by its number of targets on its data rank. Ranks along the expert
/// axis count as data ranks: gradients of experts, which got the tokens of all of them, are summed
/// over those with the same experts alone. Ranks of a tensor-parallel group run the same
/// micro-batches; with sequence parallelism the gradients of weights that all of them have are
/// summed over the group.
///
/// Bits: for the same weights, seed, step and data they do not depend on the number of stages and
///       chunks, nor on the schedule, unless weights are shared between stages.
/// Order: all ranks of a pipeline call the same functions with micro-batches of the same sizes.
/// Threads: one at a time.
/// Errors: what layers throw; CommunicationError. After an error the other ranks wait for this one:
///         end the job (World::abort(), run_guarded()).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "spillway/comm/topology.hpp"
#include "spillway/comm/world.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/groups/group.hpp"
#include "spillway/pipeline/pass_losses.hpp"
#include "spillway/pipeline/pipeline_layer.hpp"
#include "spillway/schedule/schedule.hpp"
#include "spillway/torch/session.hpp"

namespace spillway {

/// The groups that a pipeline communicates over. Default: this rank alone.
struct PipelineGroups {
  Group activations = Group();   ///< By stage.
  Group gradients = Group();     ///< By stage; see make_schedule() for why there are two.
  Group data = Group();          ///< The ranks with the same weights, experts excepted.
  Group same_experts = Group();  ///< The ranks with the same weights, experts included.
  std::vector<Group> shared;     ///< One for each of PipelineLayer::all_shared_weights().
};

/// Ordering: collective over the world.
[[nodiscard]] PipelineGroups make_pipeline_groups(World& world, const Topology& topology,
                                                  const PipelineLayer& model);

struct PipelineRunnerOptions {
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  /// Operators run in this type where autocast says so.
  std::optional<at::ScalarType> autocast = std::nullopt;
  /// Send the shapes of every message, for layers whose results have sizes that do not follow from
  /// those of the micro-batch.
  bool shapes_every_time = false;
  /// Gradients are summed over data ranks in pieces of about this size.
  Bytes bucket{25ULL << 20U};
};

/// What one pass of the whole model is about. Stages without the first or last part of the model
/// need only sizes: tensors on at::kMeta will do there.
struct MicroBatch {
  Tensors inputs;
  at::Tensor target;
};

struct StepOutcome {
  /// The mean over this rank's micro-batches, on its device; undefined but on the last stage.
  at::Tensor loss;
  /// What the layers of this stage had besides: see pass_losses.hpp.
  ExtraLosses extra = {};
};

class PipelineRunner {
 public:
  /// Lifetime: `model` must outlive this.
  /// Ordering: collective over the stages that share weights.
  /// Errors: InvalidArgument if the groups do not fit the model.
  PipelineRunner(PipelineLayer& model, PipelineGroups groups, PipelineRunnerOptions options = {});
  PipelineRunner(PipelineRunner&&) noexcept;
  ~PipelineRunner();

  /// Forward and backward of all micro-batches, within one step of `session` if there is one. Adds
  /// to the gradients. `loss_scale`: a factor on the device that gradients are multiplied with.
  /// Errors: InvalidArgument without micro-batches; also as Session::step() and Step::end(), whose
  /// VerificationError says that gradients are wrong. Alone in the world the step may be repeated
  /// then, after zero_gradients(); other data ranks have summed some of them.
  StepOutcome train(std::span<const MicroBatch> batches, Session* session = nullptr,
                    const at::Tensor& loss_scale = {});

  /// Forward alone, without gradients, dropout off.
  StepOutcome evaluate(std::span<const MicroBatch> batches);

  /// The loss of the outcome's step on every rank: from the last stage, averaged over data ranks.
  /// Ordering: collective over all ranks. On CUDA the host does not wait.
  [[nodiscard]] at::Tensor mean_loss(const StepOutcome& outcome) const;

  /// The extra losses of the outcome's step, in the order of ExtraLoss, on every rank: summed over
  /// the layers of all stages (and the tensor ranks that split sequences), averaged over data
  /// ranks; zero where there are none.
  /// Ordering: as mean_loss().
  [[nodiscard]] at::Tensor mean_extra_losses(const StepOutcome& outcome) const;

  void zero_gradients();

  /// What the next train() counts as, for what is random in it: after a restart, where it stopped.
  void set_step(std::int64_t step) noexcept;
  [[nodiscard]] std::int64_t step() const noexcept;

  /// The passes of a step with so many micro-batches, as the session gets them.
  [[nodiscard]] PassSchedule passes(int micro_batches) const;

  class State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace spillway
