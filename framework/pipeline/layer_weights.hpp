/// How much each layer of a list weighs, as a profile of the whole model shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

struct LayerWeights {
  std::vector<std::int64_t> memory;  ///< Bytes that backward needs of each.
  std::vector<std::int64_t> time;    ///< Nanoseconds of forward and backward.
};

/// `names`: the scopes of the layers. What lies in none of them (the loss) counts for the last one.
/// Backward's time counts for the layer whose saved tensor was asked for last.
[[nodiscard]] LayerWeights layer_weights(const Profile& profile,
                                         const std::vector<std::string>& names);

}  // namespace spillway
