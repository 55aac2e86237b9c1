#include "spillway/pipeline/pipeline_layer.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "pipeline/layer_weights.hpp"
#include "pipeline/stage_channel.hpp"
#include "spillway/comm/random.hpp"
#include "spillway/core/error.hpp"
#include "spillway/schedule/segment.hpp"
#include "spillway/tensor/tensor_modules.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

void check(const PipelineLayerOptions& options) {
  const auto number = [](const char* name, int value) {
    return std::string(name) + " = " + std::to_string(value);
  };
  if (options.num_stages < 1)
    refuse_pipeline(number("num_stages", options.num_stages) + ": at least 1 wanted");
  if (options.chunks < 1) refuse_pipeline(number("chunks", options.chunks) + ": at least 1 wanted");
  if (options.stage < 0 || options.stage >= options.num_stages) {
    refuse_pipeline(number("stage", options.stage) + ": one of the " +
                    std::to_string(options.num_stages) + " stages from 0 on wanted");
  }
  if (options.recompute_interval < 0) {
    refuse_pipeline(number("recompute_interval", options.recompute_interval) +
                    ": at least 0 wanted");
  }
  if (options.recompute_interval == 0 &&
      (options.recompute_offload || options.recompute_partition)) {
    refuse_pipeline(
        "recompute_offload and recompute_partition say where the inputs of recomputed layers go; "
        "give recompute_interval too");
  }
  if (!options.loss_fn) refuse_pipeline("no loss_fn: the last stage needs one");
}

void check_names(const std::vector<LayerDesc>& layers) {
  std::set<std::string> names;
  for (const LayerDesc& layer : layers) {
    if (layer.name.empty()) {
      refuse_pipeline("a layer of kind " + layer.kind +
                      " has no name; every layer needs one of its own");
    }
    if (!names.insert(layer.name).second) {
      refuse_pipeline("two layers have the name \"" + layer.name +
                      "\"; every layer needs one of its own");
    }
  }
}

std::vector<int> bounds_of(const std::vector<LayerDesc>& layers,
                           const PipelineLayerOptions& options) {
  const Segmentation segmentation = parse_segmentation(options.seg_method);
  SegmentationLayers facts;
  std::vector<std::string> scopes;
  for (const LayerDesc& layer : layers) {
    facts.names.push_back(layer.kind);
    scopes.push_back(layer.name);
  }
  if (options.profile != nullptr && !layers.empty()) {
    LayerWeights weights = layer_weights(*options.profile, scopes);
    facts.memory = std::move(weights.memory);
    facts.time = std::move(weights.time);
  }
  return segment(segmentation, facts, options.num_stages * options.chunks);
}

/// Of which experts the parameter of that name is.
ExpertSlice experts_of(const torch::nn::Module& module, const std::string& parameter) {
  for (const auto& part : module.named_modules("", /*include_self=*/true)) {
    const auto* holder = dynamic_cast<const HoldsExperts*>(part.value().get());
    const std::string prefix = part.key().empty() ? "" : part.key() + ".";
    if (holder != nullptr && parameter.starts_with(prefix)) return holder->experts();
  }
  return {};
}

}  // namespace

PipelineLayerOptions with_topology(PipelineLayerOptions options, const Topology& topology,
                                   int rank) {
  options.num_stages = topology.size(Axis::kPipeline);
  options.stage = topology.coordinate(rank, Axis::kPipeline);
  return options;
}

PipelineLayer::PipelineLayer(std::vector<LayerDesc> layers, PipelineLayerOptions options)
    : options_(std::move(options)) {
  check(options_);
  check_names(layers);
  bounds_ = bounds_of(layers, options_);
  build(layers);
  share(layers);
}

void PipelineLayer::build(const std::vector<LayerDesc>& layers) {
  std::map<std::string, int> first_with;  // By key: the first layer of the model that has it.
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].shared.empty()) first_with.emplace(layers[i].shared, static_cast<int>(i));
  }
  std::map<std::string, BuiltLayer> here;  // By key: what this stage has built.
  for (int chunk = 0; chunk < options_.chunks; ++chunk) {
    const auto at = static_cast<std::size_t>(part(chunk));
    auto& built = chunks_.emplace_back();
    for (int i = bounds_[at]; i < bounds_[at + 1]; ++i) {
      const LayerDesc& desc = layers[static_cast<std::size_t>(i)];
      const bool shared = !desc.shared.empty();
      // Copies start from the same weights: they are made by the index of the original.
      const int original = shared ? first_with.at(desc.shared) : i;
      const LayerDesc& original_desc = layers[static_cast<std::size_t>(original)];
      if (original_desc.kind != desc.kind) {
        refuse_pipeline("layers \"" + original_desc.name + "\" and \"" + desc.name +
                        "\" share weights by the key \"" + desc.shared + "\", but are a " +
                        original_desc.kind + " and a " + desc.kind);
      }
      if (const auto found = here.find(desc.shared); shared && found != here.end()) {
        built.push_back({desc, i, found->second.module});
        continue;
      }
      BuiltLayer layer = build_layer(desc, original, options_.seed);
      layer.index = i;
      if (shared) here.emplace(desc.shared, layer);
      int position = 0;
      const auto shards = shards_of(*layer.module);
      for (const auto& parameter : layer.module->named_parameters()) {
        const auto shard = shards.find(parameter.key());
        parameters_.push_back({original_desc.name + "." + parameter.key(), original, position++,
                               chunk, original != i, parameter.value(),
                               shard == shards.end() ? std::nullopt : std::optional(shard->second),
                               experts_of(*layer.module, parameter.key())});
      }
      built.push_back(std::move(layer));
    }
  }
}

void PipelineLayer::share(const std::vector<LayerDesc>& layers) {
  std::map<std::string, std::set<int>> stages_of;
  for (std::size_t at = 0; at + 1 < bounds_.size(); ++at) {
    for (int i = bounds_[at]; i < bounds_[at + 1]; ++i) {
      const std::string& key = layers[static_cast<std::size_t>(i)].shared;
      if (!key.empty()) stages_of[key].insert(static_cast<int>(at) % options_.num_stages);
    }
  }
  for (const auto& [key, stages] : stages_of) {
    if (stages.size() < 2) continue;
    SharedWeights weights{key, {stages.begin(), stages.end()}, {}};
    all_shared_.push_back(weights);
    if (!stages.contains(options_.stage)) continue;
    for (const auto& chunk : chunks_) {
      for (const BuiltLayer& layer : chunk) {
        if (layer.desc.shared != key || !weights.parameters.empty()) continue;
        weights.parameters = layer.module->parameters();
      }
    }
    shared_.push_back(std::move(weights));
  }
}

Tensors PipelineLayer::forward(int chunk, const Tensors& inputs, std::uint64_t pass_seed) const {
  Tensors values = inputs;
  for (const BuiltLayer& layer : chunks_.at(static_cast<std::size_t>(chunk))) {
    seed_generators(options_.device,
                    mix_seeds({pass_seed, static_cast<std::uint64_t>(layer.index)}));
    values = layer.run(values);
  }
  return values;
}

at::Tensor PipelineLayer::loss(const at::Tensor& output, const at::Tensor& target) const {
  const Scope scope("loss");
  return options_.loss_fn(output, target);
}

std::vector<at::Tensor> PipelineLayer::parameters() const {
  std::vector<at::Tensor> values;
  for (const StageParameter& parameter : parameters_) values.push_back(parameter.value);
  return values;
}

std::vector<at::Tensor> PipelineLayer::buffers() const {
  std::vector<at::Tensor> values;
  for (const auto& chunk : chunks_) {
    for (const BuiltLayer& layer : chunk) {
      for (const at::Tensor& buffer : layer.module->buffers()) values.push_back(buffer);
    }
  }
  return values;
}

void PipelineLayer::train(bool on) {
  for (const auto& chunk : chunks_) {
    for (const BuiltLayer& layer : chunk) layer.module->train(on);
  }
}

Rules PipelineLayer::rules() const {
  Rules rules;
  if (options_.recompute_interval > 0) {
    PaddleSettings settings;
    settings.recompute_interval = options_.recompute_interval;
    settings.recompute_offload = options_.recompute_offload;
    settings.recompute_partition = options_.recompute_partition;
    rules.settings = settings;
  }
  return rules;
}

std::string PipelineLayer::describe(int chunk) const {
  const auto& built = chunks_.at(static_cast<std::size_t>(chunk));
  const std::string& first = built.front().desc.name;
  return built.size() == 1 ? first : first + " .. " + built.back().desc.name;
}

}  // namespace spillway
