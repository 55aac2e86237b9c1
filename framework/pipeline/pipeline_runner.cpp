#include "spillway/pipeline/pipeline_runner.hpp"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "pipeline/pipeline_state.hpp"
#include "pipeline/pipeline_step.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

void check(const PipelineLayer& model, const PipelineGroups& groups) {
  const int stages = model.options().num_stages;
  for (const Group* group : {&groups.activations, &groups.gradients}) {
    if (group->size() == stages && group->rank() == model.options().stage) continue;
    throw InvalidArgument(
        "pipeline", "the model is stage " + std::to_string(model.options().stage) + " of " +
                        std::to_string(stages) + ", the group \"" + group->name() + "\" is rank " +
                        std::to_string(group->rank()) + " of " + std::to_string(group->size()) +
                        "; make both of one topology (make_pipeline_groups)");
  }
  if (groups.shared.size() != model.all_shared_weights().size()) {
    throw InvalidArgument("pipeline",
                          std::to_string(model.all_shared_weights().size()) +
                              " sets of weights are shared between stages, " +
                              std::to_string(groups.shared.size()) +
                              " groups for them were given; use make_pipeline_groups()");
  }
}

void check(std::span<const MicroBatch> batches) {
  if (batches.empty()) throw InvalidArgument("pipeline", "no micro-batches; give at least one");
  for (const MicroBatch& batch : batches) {
    if (batch.inputs.empty() || !batch.target.defined()) {
      throw InvalidArgument("pipeline",
                            "a micro-batch without inputs or target; stages that do not read them "
                            "need them too, for their sizes");
    }
  }
}

/// Calls `act(group, parameters)` for every set of weights that this stage shares with others.
template <typename Act>
void for_each_shared(const PipelineLayer& model, const PipelineGroups& groups, const Act& act) {
  for (std::size_t i = 0; i < groups.shared.size(); ++i) {
    const std::string& key = model.all_shared_weights()[i].key;
    for (const SharedWeights& weights : model.shared_weights()) {
      if (weights.key == key) act(groups.shared[i], weights.parameters);
    }
  }
}

/// With sequence parallelism every rank has seen a part of the tokens only.
void sum_over_tensor_ranks(const PipelineLayer& model) {
  const TensorParallel& tensor = model.options().tensor;
  if (!tensor.active() || !tensor.sequence) return;
  const at::NoGradGuard no_gradients;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const StageParameter& parameter : model.stage_parameters()) {
    if (parameter.shard) continue;
    by_type[parameter.value.scalar_type()].push_back(parameter.value.grad().view(-1));
  }
  for (const auto& [type, gradients] : by_type) {
    at::Tensor all = at::cat(gradients);
    tensor.group.all_reduce(all);
    std::int64_t begin = 0;
    for (const at::Tensor& gradient : gradients) {
      gradient.copy_(all.narrow(0, begin, gradient.numel()));
      begin += gradient.numel();
    }
  }
}

}  // namespace

PipelineGroups make_pipeline_groups(World& world, const Topology& topology,
                                    const PipelineLayer& model) {
  PipelineGroups groups;
  const auto pipelines = topology.partition(Axis::kPipeline);
  groups.activations = world.group("pipeline activations", pipelines);
  groups.gradients = world.group("pipeline gradients", pipelines);
  groups.data = world.group("data", topology.partition({Axis::kData, Axis::kExpert}));
  groups.same_experts = world.group("same experts", topology.partition(Axis::kData));
  for (const SharedWeights& weights : model.all_shared_weights()) {
    std::vector<std::vector<int>> partition;
    for (const std::vector<int>& pipeline : pipelines) {
      std::vector<int> holders;
      for (std::size_t stage = 0; stage < pipeline.size(); ++stage) {
        const bool holds = std::find(weights.stages.begin(), weights.stages.end(),
                                     static_cast<int>(stage)) != weights.stages.end();
        if (holds) holders.push_back(pipeline[stage]);
        if (!holds) partition.push_back({pipeline[stage]});
      }
      partition.push_back(std::move(holders));
    }
    groups.shared.push_back(world.group("shared " + weights.key, partition));
  }
  return groups;
}

PipelineRunner::State::State(PipelineLayer& of, PipelineGroups with, PipelineRunnerOptions chosen)
    : model(of),
      groups(std::move(with)),
      options(chosen),
      activations(groups.activations, of.options().device),
      gradients(groups.gradients, of.options().device) {
  if (groups.data.size() == 1) return;
  std::vector<StageParameter> dense;
  std::vector<StageParameter> experts;
  for (const StageParameter& parameter : model.stage_parameters()) {
    (parameter.experts.any() ? experts : dense).push_back(parameter);
  }
  buckets.emplace_back(dense, groups.data, options.bucket);
  if (!experts.empty()) buckets.emplace_back(experts, groups.same_experts, options.bucket);
}

PipelineRunner::PipelineRunner(PipelineLayer& model, PipelineGroups groups,
                               PipelineRunnerOptions options) {
  check(model, groups);
  state_ = std::make_unique<State>(model, std::move(groups), options);
  for_each_shared(model, state_->groups, [](const Group& group, const auto& parameters) {
    const at::NoGradGuard no_gradients;
    for (at::Tensor parameter : parameters) group.broadcast(parameter, 0);
  });
  zero_gradients();
}

PipelineRunner::PipelineRunner(PipelineRunner&&) noexcept = default;
PipelineRunner::~PipelineRunner() = default;

PassSchedule PipelineRunner::passes(int micro_batches) const {
  const PipelineLayerOptions& options = state_->model.options();
  return passes_of(make_schedule(state_->options.schedule, {options.stage, options.num_stages,
                                                            options.chunks, micro_batches}));
}

StepOutcome PipelineRunner::train(std::span<const MicroBatch> batches, Session* session,
                                  const at::Tensor& loss_scale) {
  check(batches);
  PipelineLayer& model = state_->model;
  model.train(true);
  auto actions = make_schedule(state_->options.schedule,
                               {model.options().stage, model.options().num_stages,
                                model.options().chunks, static_cast<int>(batches.size())});
  StepOutcome outcome;
  std::optional<Step> step;
  if (session != nullptr) step.emplace(session->step(passes_of(actions)));
  {
    PipelineStep run(*state_, batches, std::move(actions), step ? &*step : nullptr, loss_scale);
    run.run();
    outcome.loss = run.loss();
    outcome.extra = run.extra_losses();
  }
  // Not left to the destructor, which cannot throw that the gradients are wrong.
  if (step) step->end();
  for (GradientBuckets& buckets : state_->buckets) buckets.finish();
  sum_over_tensor_ranks(model);
  for_each_shared(model, state_->groups, [](const Group& group, const auto& parameters) {
    for (const at::Tensor& parameter : parameters) group.all_reduce(parameter.mutable_grad());
  });
  state_->activations.settle(0);
  state_->gradients.settle(0);
  ++state_->step;
  return outcome;
}

StepOutcome PipelineRunner::evaluate(std::span<const MicroBatch> batches) {
  check(batches);
  const at::NoGradGuard no_gradients;
  PipelineLayer& model = state_->model;
  model.train(false);
  auto actions = make_schedule(ScheduleKind::kGpipe,
                               {model.options().stage, model.options().num_stages,
                                model.options().chunks, static_cast<int>(batches.size())});
  std::erase_if(actions, [](const PipelineAction& action) {
    return action.kind == PipelineActionKind::kBackward ||
           action.kind == PipelineActionKind::kSendGradient ||
           action.kind == PipelineActionKind::kReceiveGradient;
  });
  PipelineStep run(*state_, batches, std::move(actions), nullptr, {});
  run.run();
  state_->activations.settle(0);
  model.train(true);
  return {run.loss(), {}};
}

at::Tensor PipelineRunner::mean_loss(const StepOutcome& outcome) const {
  const PipelineLayerOptions& options = state_->model.options();
  // Not the outcome's own: sums are made in place.
  at::Tensor loss = outcome.loss.defined()
                        ? outcome.loss.clone()
                        : at::zeros({}, at::TensorOptions(options.device).dtype(at::kDouble));
  state_->groups.activations.broadcast(loss, options.num_stages - 1);
  const int ranks = state_->groups.data.size();
  if (ranks == 1) return loss;
  state_->groups.data.all_reduce(loss);
  return loss / ranks;
}

at::Tensor PipelineRunner::mean_extra_losses(const StepOutcome& outcome) const {
  const auto options = at::TensorOptions(state_->model.options().device).dtype(at::kDouble);
  std::vector<at::Tensor> values;
  for (const at::Tensor& each : outcome.extra) {
    values.push_back(each.defined() ? each : at::zeros({}, options));
  }
  at::Tensor sums = at::stack(values);
  state_->groups.activations.all_reduce(sums);
  state_->groups.data.all_reduce(sums);
  // Where sequences are split, each tensor rank has its part of a sum.
  const TensorParallel& tensor = state_->model.options().tensor;
  if (tensor.active() && tensor.sequence) tensor.group.all_reduce(sums);
  return sums / state_->groups.data.size();
}

void PipelineRunner::zero_gradients() {
  for (GradientBuckets& buckets : state_->buckets) buckets.zero();
  if (!state_->buckets.empty()) return;
  for (const StageParameter& parameter : state_->model.stage_parameters()) {
    at::Tensor& gradient = parameter.value.mutable_grad();
    if (gradient.defined()) {
      gradient.zero_();
    } else {
      gradient = at::zeros_like(parameter.value);
    }
  }
}

void PipelineRunner::set_step(std::int64_t step) noexcept { state_->step = step; }
std::int64_t PipelineRunner::step() const noexcept { return state_->step; }

}  // namespace spillway
