/// What a model and tensor parallelism ask of its shape. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {

/// Errors: InvalidArgument with `what` unless it holds.
void require(bool holds, const std::string& what);

/// Errors: InvalidArgument that names the first of the `numbers` that the ranks do not divide.
void check_divisible(const TensorParallel& parallel,
                     const std::vector<std::pair<std::string, std::int64_t>>& numbers);

}  // namespace spillway
