#include "spillway/pipeline/layer_desc.hpp"

#include <ATen/Context.h>
#include <c10/util/Type.h>

#include "spillway/comm/random.hpp"
#include "spillway/core/error.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {

namespace detail {

std::string kind_of(const std::type_info& type) {
  const std::string name = c10::demangle(type.name());
  const auto colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace detail

Tensors BuiltLayer::run(const Tensors& inputs) const {
  const Scope scope(desc.name);
  return desc.forward(*module, inputs);
}

BuiltLayer build_layer(const LayerDesc& desc, int index, std::uint64_t seed) {
  if (!desc.build || !desc.forward) {
    throw InvalidArgument("pipeline", "layer " + std::to_string(index) + " (\"" + desc.name +
                                          "\") cannot be built: give it build and forward");
  }
  at::manual_seed(mix_seeds({seed, static_cast<std::uint64_t>(index)}));
  BuiltLayer layer{desc, index, desc.build()};
  if (layer.module == nullptr) {
    throw InvalidArgument("pipeline", "building layer " + std::to_string(index) + " (\"" +
                                          desc.name + "\") gave no module");
  }
  return layer;
}

}  // namespace spillway
