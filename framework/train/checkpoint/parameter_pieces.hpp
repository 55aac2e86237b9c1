/// Parameters as checkpoints, digests and the optimizer know them: those of experts one by one, so
/// that nothing depends on which rank has which experts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/pipeline/pipeline_layer.hpp"
#include "train/model/named_tensor.hpp"

namespace spillway::app {

/// The names of its pieces, in the order of pieces_of().
[[nodiscard]] std::vector<std::string> piece_names(const StageParameter& parameter);

/// How each of its pieces is sharded over the tensor-parallel group; empty: not at all.
[[nodiscard]] std::optional<Shard> piece_shard(const StageParameter& parameter);

/// "layers.1.mlp.experts.fc2" of the experts 2 and 3 is "layers.1.mlp.experts.2.fc2" and
/// "layers.1.mlp.experts.3.fc2": windows on the parameter, with windows on its gradient, which must
/// be there and stay where it is. Any other parameter is itself.
[[nodiscard]] std::vector<NamedTensor> pieces_of(const StageParameter& parameter);

}  // namespace spillway::app
