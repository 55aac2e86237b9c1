/// Collectives as operators of the dispatcher, so that a session records them. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include "spillway/groups/group.hpp"

namespace spillway {

/// The reduction over all members. All of these give new tensors, which are there on return.
[[nodiscard]] at::Tensor call_all_reduce(const Group& group, const at::Tensor& x,
                                         Reduce reduce = Reduce::kSum);
/// The members' tensors one after the other along dimension 1.
[[nodiscard]] at::Tensor call_all_gather(const Group& group, const at::Tensor& x);
/// Of the sum over all members the part of this rank along dimension 1.
[[nodiscard]] at::Tensor call_reduce_scatter(const Group& group, const at::Tensor& x);

/// Errors: InvalidArgument if dimension 1 cannot be divided into equal parts.
void require_equal_parts(const Group& group, const at::Tensor& x);

}  // namespace spillway
