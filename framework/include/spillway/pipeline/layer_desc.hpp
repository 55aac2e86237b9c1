/// A model as a list of layers that are built where they are needed: each stage of a pipeline
/// builds its own layers and no others.
///
///   std::vector<LayerDesc> layers;
///   layers.push_back(describe_layer<Embedding>("embedding", vocabulary, hidden));
///   for (int i = 0; i < 8; ++i)
///     layers.push_back(describe_layer<Block>("layers." + std::to_string(i), hidden));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace spillway {

/// What goes from one layer to the next.
using Tensors = std::vector<at::Tensor>;

struct LayerDesc {
  /// What the layer is, for segmentation by "layer:Kind".
  std::string kind;
  /// Its path in the model, "layers.3": the beginning of its parameters' names, and the scope in
  /// which it runs. No two layers have the same.
  std::string name;
  /// Makes the layer. The default generators are seeded by the layer's index in the model before,
  /// so that its weights do not depend on which stage builds it.
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  std::function<Tensors(torch::nn::Module&, const Tensors&)> forward;
  /// Layers with the same key have the same weights: one module on a stage that has several of
  /// them, copies of it that get the sum of all gradients on different stages. Empty: its own.
  std::string shared;
};

/// A layer that was built.
struct BuiltLayer {
  LayerDesc desc;
  int index = 0;  ///< In the model.
  std::shared_ptr<torch::nn::Module> module;

  /// In the scope of its name.
  [[nodiscard]] Tensors run(const Tensors& inputs) const;
};

/// Calls `build` after seeding, and checks what it gave.
/// Errors: InvalidArgument if there is no module.
[[nodiscard]] BuiltLayer build_layer(const LayerDesc& desc, int index, std::uint64_t seed);

namespace detail {

/// The name of a class without its namespaces.
[[nodiscard]] std::string kind_of(const std::type_info& type);

}  // namespace detail

/// A layer of class `Module`, with forward(Tensor) -> Tensor or forward(Tensors) -> Tensors, made
/// from `arguments`, which are copied. Its kind is the name of the class.
template <typename Module, typename... Arguments>
[[nodiscard]] LayerDesc describe_layer(std::string name, Arguments... arguments) {
  LayerDesc desc;
  desc.kind = detail::kind_of(typeid(Module));
  desc.name = std::move(name);
  desc.build = [=] { return std::make_shared<Module>(arguments...); };
  desc.forward = [](torch::nn::Module& module, const Tensors& inputs) {
    auto& layer = dynamic_cast<Module&>(module);
    if constexpr (requires { layer.forward(inputs); }) {
      return layer.forward(inputs);
    } else {
      return Tensors{layer.forward(inputs.at(0))};
    }
  };
  return desc;
}

/// A layer that shares its weights with all others of the same `key`; `forward(module, x)` says
/// what it does with them here.
template <typename Module, typename Forward, typename... Arguments>
[[nodiscard]] LayerDesc describe_shared_layer(std::string key, std::string name, Forward forward,
                                              Arguments... arguments) {
  LayerDesc desc = describe_layer<Module>(std::move(name), std::move(arguments)...);
  desc.shared = std::move(key);
  desc.forward = [forward = std::move(forward)](torch::nn::Module& module, const Tensors& inputs) {
    auto& layer = dynamic_cast<Module&>(module);
    if constexpr (std::is_invocable_v<const Forward&, Module&, const Tensors&>) {
      return forward(layer, inputs);
    } else {
      return Tensors{forward(layer, inputs.at(0))};
    }
  };
  return desc;
}

}  // namespace spillway
