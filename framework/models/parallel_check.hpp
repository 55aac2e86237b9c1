/// What tensor parallelism asks of a model's shape. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

/// Errors: InvalidArgument that names the first of the `numbers` that the ranks do not divide.
void check_divisible(const TensorParallel& parallel,
                     const std::vector<std::pair<std::string, std::int64_t>>& numbers);

}  // namespace spillway
