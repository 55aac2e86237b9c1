#include "single_stage.hpp"

#include <chrono>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "spillway/models/token_embedding.hpp"
#include "train/model/device_memory.hpp"

namespace spillway::bench {
namespace {

PipelineLayerOptions layer_options(const LlamaShape& shape, const PipelineRank& rank) {
  PipelineLayerOptions options;
  options.num_stages = rank.stages;
  options.stage = rank.stage;
  options.chunks = rank.chunks;
  options.loss_fn = language_model_loss;
  options.seg_method = "layer:LlamaLayer";
  options.seed = shape.seed;
  options.device = shape.device;
  return options;
}

}  // namespace

SingleStage::SingleStage(const LlamaShape& shape, const PipelineRank& rank)
    : model_(llama_layers(shape), layer_options(shape, rank)),
      actions_(make_schedule(ScheduleKind::kOneForwardOneBackward, rank)),
      tokens_(at::randint(shape.vocabulary, {1, shape.tokens},
                          at::TensorOptions(shape.device).dtype(at::kLong))),
      received_(at::randn({1, shape.tokens, shape.hidden},
                          at::TensorOptions(shape.device).dtype(shape.dtype))),
      weight_(at::full({}, 1.0 / rank.micro_batches, at::TensorOptions(shape.device))) {
  (void)step(nullptr);  // Allocates the gradients.
}

app::MeasuredStep SingleStage::step(Session* session) {
  for (const at::Tensor& parameter : model_.parameters()) {
    if (parameter.grad().defined()) parameter.mutable_grad().zero_();
  }
  const at::Device device = tokens_.device();
  const std::uint64_t before = app::start_measuring_memory(device);
  const auto begin = std::chrono::steady_clock::now();
  {
    std::optional<Step> scope;
    if (session != nullptr) scope.emplace(session->step(passes_of(actions_)));
    run(scope ? &*scope : nullptr);
    if (scope) scope->end();  // Throws if gradients are wrong.
  }
  app::wait_for_device(device);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return {time.count(), Bytes(app::peak_memory(device) - before)};
}

void SingleStage::run(Step* step) {
  for (const PipelineAction& action : actions_) {
    // forward() and backward() emulate the messages.
    if (action.kind == PipelineActionKind::kForward) forward(action, step);
    if (action.kind == PipelineActionKind::kBackward) backward(action, step);
  }
}

void SingleStage::forward(const PipelineAction& action, Step* step) {
  if (step != nullptr) step->pass(action.chunk, action.micro_batch);
  PendingPass& pass = pending_[{action.chunk, action.micro_batch}];
  at::Tensor input = tokens_;
  if (!model_.is_first(action.chunk)) {
    input = pass.input = received_.clone().set_requires_grad(true);
  }
  const auto seed = static_cast<std::uint64_t>(action.micro_batch);
  at::Tensor output = model_.forward(action.chunk, {input}, seed).at(0);
  if (model_.is_last(action.chunk)) output = model_.loss(output, tokens_);
  pass.output = torch::autograd::impl::gradient_edge(output);
}

void SingleStage::backward(const PipelineAction& action, Step* step) {
  if (step != nullptr) step->backward();
  const auto found = pending_.find({action.chunk, action.micro_batch});
  const PendingPass pass = std::move(found->second);
  pending_.erase(found);
  const at::Tensor gradient = model_.is_last(action.chunk) ? weight_ : received_.clone();
  torch::autograd::Engine::get_default_engine().execute(
      {pass.output}, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

int SingleStage::count_different(Session& session) {
  return app::count_different_gradients(model_.parameters(), session,
                                        [this](Session* used) { (void)step(used); });
}

}  // namespace spillway::bench
