/// Training a small model with experts on whatever ranks there are, with and without a session.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "spillway/comm/random.hpp"
#include "spillway/models/gpt.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/models/token_embedding.hpp"
#include "spillway/pipeline/pipeline_runner.hpp"

namespace spillway::testing {

struct MoeCase {
  std::string model = "llama";
  double capacity_factor = 0;
  MoeOverlap overlap = MoeOverlap::kShared;
  at::ScalarType dtype = at::kFloat;
  double dropout = 0.1;  ///< Of gpt.
  /// The ranks that experts are spread over, and those that share each.
  Group experts = Group();
  TensorParallel tensor = {};
};

inline std::vector<LayerDesc> moe_layers(const MoeCase& of) {
  MoeShape moe{.experts = 4,
               .ffn = 40,
               .shared_ffn = 24,
               .capacity_factor = of.capacity_factor,
               .overlap = of.overlap,
               .router = {.aux_loss = 0.05, .z_loss = 0.01},
               .group = of.experts};
  if (of.model == "gpt") {
    return gpt_layers({.layers = 4,
                       .hidden = 32,
                       .heads = 4,
                       .ffn = 48,
                       .tokens = 32,
                       .vocabulary = 50,
                       .dropout = of.dropout,
                       .moe = moe,
                       .dtype = of.dtype,
                       .parallel = of.tensor});
  }
  return llama_layers({.layers = 4,
                       .hidden = 32,
                       .heads = 4,
                       .kv_heads = 2,
                       .ffn = 48,
                       .tokens = 32,
                       .vocabulary = 50,
                       .moe = moe,
                       .dtype = of.dtype,
                       .parallel = of.tensor});
}

inline PipelineLayer moe_model(const MoeCase& of) {
  PipelineLayerOptions options;
  options.loss_fn = std::bind_front(vocabulary_cross_entropy, of.tensor);
  options.seed = 5;
  options.tensor = of.tensor;
  return {moe_layers(of), options};
}

/// Text of a step: other words on every rank and in every step, so that other experts are chosen.
inline std::vector<MicroBatch> moe_batches(std::int64_t step, int rank, int count,
                                           std::int64_t length = 32) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) {
    const auto seed = mix_seeds({static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank),
                                 static_cast<std::uint64_t>(i)});
    auto generator = at::detail::createCPUGenerator(seed);
    const at::Tensor text =
        at::randint(0, 8 + 6 * (step % 7), {2, length + 1}, generator, at::kLong);
    batches.push_back({{text.narrow(1, 0, length)}, text.narrow(1, 1, length)});
  }
  return batches;
}

struct MoeTrained {
  std::vector<at::Tensor> values;  ///< Losses and gradients of all steps.
  std::vector<Bytes> moved;        ///< By step.
};

/// `lengths`: of the sequences, by step.
inline MoeTrained train_moe(PipelineLayer& model, const PipelineGroups& groups, Session* session,
                            const std::vector<std::int64_t>& lengths) {
  PipelineRunner runner(model, groups);
  if (session != nullptr) session->register_model(model);
  MoeTrained trained;
  std::int64_t step = 0;
  for (const std::int64_t length : lengths) {
    runner.zero_gradients();
    const auto batches = moe_batches(step++, groups.data.rank(), 2, length);
    const StepOutcome outcome = runner.train(batches, session);
    trained.values.push_back(outcome.loss.clone());
    for (const at::Tensor& each : outcome.extra) trained.values.push_back(each.clone());
    const at::NoGradGuard no_gradients;
    for (const at::Tensor& parameter : model.parameters()) {
      trained.values.push_back(parameter.grad().clone());
      parameter.sub_(parameter.grad(), 0.5);
    }
    if (session != nullptr) trained.moved.push_back(session->report().bytes_out);
  }
  return trained;
}

/// How many values differ in a bit.
inline int count_different(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  int different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!at::equal(a[i], b[i])) ++different;
  }
  return different;
}

inline SessionOptions moe_session(const std::string& rules) {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = Bytes(256);
  options.host = Bytes(8ULL << 20U);
  options.offload_window = Bytes(16ULL << 10U);
  options.prefetch_window = Bytes(16ULL << 10U);
  if (!rules.empty()) options.rules = parse_rules(rules, "a test");
  return options;
}

/// What is done with the activations of experts, by name.
using NamedRules = std::pair<std::string, std::string>;
inline std::vector<NamedRules> moe_rules() {
  return {
      {"offload of what experts save",
       "[[rule]]\nmodule = ['expert_fc1', 'moe_act']\naction = 'offload'\n"},
      {"recompute of the activation",
       "[[rule]]\nmade_in_module = 'moe_act'\naction = 'recompute'\n"},
      {"both",
       "[[rule]]\nmade_in_module = 'moe_act'\naction = 'recompute'\n"
       "[[rule]]\nmodule = ['router', 'expert_fc1', 'expert_fc2', 'shared_experts']\n"
       "action = 'offload'\n"},
      {"everything offloaded", "[[rule]]\naction = 'offload'\n"},
      {"everything recomputed", "[[rule]]\naction = 'recompute'\n"},
  };
}

}  // namespace spillway::testing
