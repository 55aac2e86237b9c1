#include "pipeline_models.hpp"

#include <cstring>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "spillway/models/gpt.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/tensor/tensor_modules.hpp"

namespace spillway::testing {
namespace {

constexpr std::int64_t kVocabulary = 60;
constexpr std::int64_t kTokens = 24;

std::vector<LayerDesc> layers_of(const PipelineCase& of) {
  if (of.model == "gpt") {
    return gpt_layers({.layers = of.layers,
                       .hidden = 32,
                       .heads = 4,
                       .ffn = 64,
                       .tokens = kTokens,
                       .vocabulary = kVocabulary,
                       .dropout = of.dropout,
                       .tied = of.tied,
                       .parallel = of.tensor});
  }
  return llama_layers({.layers = of.layers,
                       .hidden = 32,
                       .heads = 4,
                       .kv_heads = 2,
                       .ffn = 64,
                       .tokens = kTokens,
                       .vocabulary = kVocabulary,
                       .dropout = of.dropout,
                       .tied = of.tied,
                       .dtype = at::kFloat,
                       .parallel = of.tensor});
}

}  // namespace

PipelineLayer make_model(const PipelineCase& of) {
  PipelineLayerOptions options;
  options.num_stages = of.stages;
  options.stage = of.stage;
  options.chunks = of.chunks;
  options.loss_fn = [tensor = of.tensor](const at::Tensor& logits, const at::Tensor& targets) {
    return vocabulary_cross_entropy(tensor, logits, targets);
  };
  options.tensor = of.tensor;
  options.seg_method = of.seg_method;
  options.recompute_interval = of.recompute_interval;
  options.seed = 5;
  return {layers_of(of), options};
}

std::vector<MicroBatch> make_batches(std::int64_t step, int data_rank, int count, bool uneven) {
  at::Generator generator =
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(step * 1000 + data_rank));
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) {
    const std::int64_t rows = uneven && i + 1 == count ? 1 : 2;
    const std::int64_t length = uneven && i + 1 == count ? 11 : kTokens;
    const at::Tensor text = at::randint(kVocabulary, {rows, length + 1}, generator, at::kLong);
    batches.push_back(
        {{text.narrow(1, 0, length).contiguous()}, text.narrow(1, 1, length).contiguous()});
  }
  return batches;
}

Weights weights_of(const PipelineLayer& model) {
  Weights weights;
  for (const StageParameter& parameter : model.stage_parameters()) {
    weights[parameter.name] = parameter.value.detach().clone();
  }
  return weights;
}

void descend(const PipelineLayer& model) {
  const at::NoGradGuard no_gradients;
  for (at::Tensor& parameter : model.parameters()) parameter.sub_(parameter.grad(), 0.1);
}

std::vector<std::string> different(const Weights& found, const Weights& wanted) {
  std::vector<std::string> names;
  for (const auto& [name, value] : found) {
    const auto same = wanted.find(name);
    const bool equal =
        same != wanted.end() && same->second.sizes() == value.sizes() &&
        std::memcmp(same->second.const_data_ptr(), value.const_data_ptr(), value.nbytes()) == 0;
    if (!equal) names.push_back(name);
  }
  return names;
}

Trained train_in(PipelineLayer& model, PipelineGroups groups, const TrainingCase& training,
                 Session* session) {
  const int data_rank = groups.data.rank();
  PipelineRunner runner(model, std::move(groups),
                        {.schedule = training.schedule, .autocast = training.autocast});
  if (session != nullptr) session->register_model(model);
  Trained trained;
  for (int step = 0; step < training.steps; ++step) {
    const auto batches = make_batches(step, data_rank, training.micro_batches, training.uneven);
    runner.zero_gradients();
    const StepOutcome outcome = runner.train(batches, session);
    trained.losses.push_back(runner.mean_loss(outcome).item<double>());
    descend(model);
  }
  trained.weights = weights_of(model);
  return trained;
}

Trained train_alone(PipelineCase of, const TrainingCase& training) {
  of.stages = 1;
  of.stage = 0;
  of.chunks = 1;
  of.seg_method = "uniform";
  PipelineLayer model = make_model(of);
  return train_in(model, {}, training);
}

}  // namespace spillway::testing
