/// What runs chains of elementwise operators on a device; internal.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "torch/device/chain_program.hpp"

namespace spillway {

/// Runs chains on a device. One thread at a time.
class ChainRunner {
 public:
  ChainRunner() = default;
  ChainRunner(const ChainRunner&) = delete;
  ChainRunner& operator=(const ChainRunner&) = delete;
  virtual ~ChainRunner() = default;

  /// Queues the kernel on the current stream. `outputs` are of the nodes that are stored, in order,
  /// `elements` each. Returns false if there is no such kernel: then nothing was queued.
  /// Lifetime: of the tensors, as for any operator.
  [[nodiscard]] virtual bool run(const ChainProgram& program, std::int64_t elements,
                                 std::int64_t inner, std::span<const at::Tensor> inputs,
                                 std::span<const at::Tensor> outputs) = 0;
};

}  // namespace spillway
