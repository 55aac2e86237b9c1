#include "spillway/tensor/tensor_modules.hpp"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

namespace spillway {

at::Tensor ShardedModule::add_part(const std::string& name, const at::Tensor& whole, int dimension,
                                   std::vector<std::int64_t> blocks) {
  if (!parallel_.active()) return register_parameter(name, whole);
  if (blocks.empty()) blocks = {whole.size(dimension)};
  Shard shard{dimension, std::move(blocks)};
  const at::Tensor part = part_of(whole, shard, parallel_.rank(), parallel_.ranks());
  shards_.emplace(name, std::move(shard));
  return register_parameter(name, part);
}

std::map<std::string, Shard> shards_of(const torch::nn::Module& module) {
  std::map<std::string, Shard> found;
  for (const auto& each : module.named_modules()) {
    const auto* sharded = dynamic_cast<const ShardedModule*>(each.value().get());
    if (sharded == nullptr) continue;
    for (const auto& [name, shard] : sharded->shards()) {
      found.emplace(each.key().empty() ? name : each.key() + "." + name, shard);
    }
  }
  return found;
}

ColumnLinear::ColumnLinear(const TensorParallel& parallel, const at::Tensor& weight,
                           const at::Tensor& bias, const std::vector<std::int64_t>& blocks)
    : ShardedModule(parallel), weight_(add_part("weight", weight, 0, blocks)) {
  if (bias.defined()) bias_ = add_part("bias", bias, 0, blocks);
}

at::Tensor ColumnLinear::forward(const at::Tensor& x) const {
  return at::linear(enter(parallel(), x), weight_, bias_);
}

RowLinear::RowLinear(const TensorParallel& parallel, const at::Tensor& weight,
                     const at::Tensor& bias)
    : ShardedModule(parallel), weight_(add_part("weight", weight, 1)) {
  if (bias.defined()) bias_ = register_parameter("bias", bias);
}

at::Tensor RowLinear::forward(const at::Tensor& x) const {
  if (!parallel().active()) return at::linear(x, weight_, bias_);
  const at::Tensor sum = leave(parallel(), at::linear(x, weight_));
  return bias_.defined() ? sum + bias_ : sum;
}

}  // namespace spillway
