#include "pipeline_stage.hpp"

#include <ATen/Parallel.h>

#include "spillway/torch/scope.hpp"

namespace spillway::testing {

PipelineStage::PipelineStage(const StageOptions& options) : options_(options) {
  at::set_num_threads(1);
  at::manual_seed(11);
  const std::int64_t hidden = options.hidden;
  chunks_.resize(static_cast<std::size_t>(options.rank.chunks));
  for (std::vector<Layer>& chunk : chunks_) {
    for (int i = 0; i < options.layers; ++i) {
      chunk.push_back(
          {weight({hidden}), weight({4 * hidden, hidden}), weight({hidden, 4 * hidden})});
    }
  }
}

at::Tensor PipelineStage::weight(std::vector<std::int64_t> sizes) {
  at::Tensor tensor =
      (at::randn(sizes) * 0.1 + (sizes.size() == 1 ? 1.0 : 0.0)).detach().set_requires_grad(true);
  parameters_.push_back(tensor);
  return tensor;
}

int PipelineStage::part(int chunk) const {
  return chunk * options_.rank.stages + options_.rank.stage;
}

bool PipelineStage::is_last(int chunk) const {
  return part(chunk) + 1 == options_.rank.chunks * options_.rank.stages;
}

at::Tensor PipelineStage::synthetic(int what, int chunk, int micro_batch, int seed) const {
  at::manual_seed(
      static_cast<std::uint64_t>(((seed * 64 + micro_batch) * 64 + part(chunk)) * 4 + what));
  return at::randn({options_.tokens, options_.hidden});
}

std::vector<PipelineAction> PipelineStage::actions(int micro_batches) const {
  PipelineRank rank = options_.rank;
  if (micro_batches > 0) rank.micro_batches = micro_batches;
  return make_schedule(options_.schedule, rank);
}

std::vector<at::Tensor> PipelineStage::run(Step* step, const std::vector<PipelineAction>& actions,
                                           int seed, bool keep) {
  std::vector<at::Tensor> values;
  for (const PipelineAction& action : actions) {
    if (action.kind == PipelineActionKind::kForward) {
      if (step != nullptr) step->pass(action.chunk, action.micro_batch);
      forward(action, seed);
    } else if (action.kind == PipelineActionKind::kBackward) {
      if (step != nullptr) step->backward();
      backward(action, seed, keep ? &values : nullptr);
    }
  }
  return values;
}

void PipelineStage::forward(const PipelineAction& action, int seed) {
  OpenPass open;
  open.input = synthetic(0, action.chunk, action.micro_batch, seed);
  if (part(action.chunk) > 0) open.input.set_requires_grad(true);
  at::Tensor x = open.input;
  const std::vector<Layer>& layers = chunks_[static_cast<std::size_t>(action.chunk)];
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Scope scope("layers." +
                      std::to_string(part(action.chunk) * options_.layers + static_cast<int>(i)));
    const at::Tensor h = at::layer_norm(x, {options_.hidden}, layers[i].norm, {}, 1e-5);
    const at::Tensor up = at::gelu(at::linear(h, layers[i].up));
    x = x + at::dropout(at::linear(up, layers[i].down), options_.dropout, true);
  }
  open.output = is_last(action.chunk) ? at::mean(at::mul(x, x)) : x;
  open_passes_[{action.chunk, action.micro_batch}] = std::move(open);
}

void PipelineStage::backward(const PipelineAction& action, int seed,
                             std::vector<at::Tensor>* values) {
  OpenPass open = std::move(open_passes_.at({action.chunk, action.micro_batch}));
  open_passes_.erase({action.chunk, action.micro_batch});
  if (is_last(action.chunk)) {
    open.output.backward();
    if (values != nullptr) values->push_back(open.output.detach().clone());
  } else {
    open.output.backward(synthetic(1, action.chunk, action.micro_batch, seed));
  }
  if (values != nullptr && part(action.chunk) > 0) values->push_back(open.input.grad().clone());
}

std::vector<at::Tensor> PipelineStage::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  return gradients;
}

void PipelineStage::zero_gradients() {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

}  // namespace spillway::testing
