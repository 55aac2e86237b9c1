#include "train/run/tensor_ranks.hpp"

#include "train/checkpoint/parameter_pieces.hpp"

namespace spillway::app {

TensorRanks::TensorRanks(const PipelineLayer& model) : group_(model.options().tensor.group) {
  for (const StageParameter& parameter : model.stage_parameters()) {
    const std::optional<Shard> shard = piece_shard(parameter);
    if (!shard) continue;
    for (const std::string& name : piece_names(parameter)) shards_.emplace(name, *shard);
  }
}

const Shard* TensorRanks::shard_of(const std::string& name, const at::Tensor& tensor) const {
  auto found = shards_.find(name);
  if (found == shards_.end()) found = shards_.find(name.substr(0, name.rfind('.')));
  if (found == shards_.end() || tensor.dim() <= found->second.dimension) return nullptr;
  return &found->second;
}

std::vector<NamedTensor> TensorRanks::wholes(const std::vector<NamedTensor>& tensors) const {
  std::vector<NamedTensor> wholes;
  for (const NamedTensor& each : tensors) {
    const Shard* shard = shard_of(each.name, each.tensor);
    wholes.push_back({each.name, shard == nullptr
                                     ? each.tensor
                                     : gather_buffer(group_, each.tensor, *shard).cpu()});
  }
  return wholes;
}

at::Tensor TensorRanks::part(const std::string& name, const at::Tensor& whole) const {
  const Shard* shard = shard_of(name, whole);
  return shard == nullptr ? whole : part_of(whole, *shard, group_.rank(), group_.size());
}

bool TensorRanks::counts(const StageParameter& parameter) const {
  return !parameter.copy && (parameter.shard.has_value() || group_.rank() == 0);
}

std::int64_t whole_elements(const StageParameter& parameter, const Group& tensor) {
  return parameter.value.numel() * (parameter.shard ? tensor.size() : 1);
}

}  // namespace spillway::app
