/// The parameters of a rank as those of the whole model, where tensor-parallel ranks share them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spillway/pipeline/pipeline_layer.hpp"
#include "train/model/named_tensor.hpp"

namespace spillway::app {

/// Files and digests are about whole tensors; this knows which of a stage's are sharded, and how.
/// Names may have endings, as those of an optimizer's state ("layers.0.mlp.fc1.exp_avg"): such a
/// tensor is sharded as the parameter is, if it has its dimensions.
class TensorRanks {
 public:
  explicit TensorRanks(const PipelineLayer& model);

  /// The whole of each, on the CPU if it was sharded.
  /// Ordering: collective over the tensor-parallel group, with the same names in the same order.
  [[nodiscard]] std::vector<NamedTensor> wholes(const std::vector<NamedTensor>& tensors) const;

  /// This rank's part of a whole of that name.
  /// Errors: InvalidArgument as part_of().
  [[nodiscard]] at::Tensor part(const std::string& name, const at::Tensor& whole) const;

  /// Whether this rank is the one that counts `parameter`, which others may have too.
  [[nodiscard]] bool counts(const StageParameter& parameter) const;

  [[nodiscard]] const Group& group() const noexcept { return group_; }

 private:
  [[nodiscard]] const Shard* shard_of(const std::string& name, const at::Tensor& tensor) const;

  Group group_;
  std::map<std::string, Shard> shards_;  // By name of the parameter, of experts by piece.
};

/// Of the whole parameter.
[[nodiscard]] std::int64_t whole_elements(const StageParameter& parameter, const Group& tensor);

}  // namespace spillway::app
