/// Keeps works that their callers dropped until they are done.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace spillway {

/// Returns at once. gloo cancels a send whose work is destroyed, and reports completion only to a
/// waiting thread; so a thread of its own waits, for one after the other. Errors are dropped too.
void keep_until_done(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> tensors) noexcept;

}  // namespace spillway
