/// Arithmetic of reductions.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace spillway::mpi {

/// Errors: InvalidArgument, naming the operation, unless elements of `type` can be reduced so.
void check_reduction(const char* operation, c10::ScalarType type, c10d::ReduceOp::RedOpType how);

/// Combines `rows`, each of `count` elements of `type`, element by element in the order of the rows
/// into `out`, which may be one of them. bfloat16 and half are combined in float and rounded once.
void reduce_rows(c10::ScalarType type, c10d::ReduceOp::RedOpType how,
                 const std::vector<const void*>& rows, void* out, std::int64_t count);

}  // namespace spillway::mpi
