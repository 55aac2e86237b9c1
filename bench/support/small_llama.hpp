/// The model of small runs. For programs that link spillway_train.
#pragma once

#include "spillway/models/llama.hpp"

namespace spillway::bench {

/// Takes seconds a row, also on the CPU.
[[nodiscard]] inline LlamaShape small_llama(at::Device device) {
  return {.layers = 4,
          .hidden = 256,
          .heads = 8,
          .kv_heads = 2,
          .ffn = 512,
          .tokens = 512,
          .vocabulary = 1000,
          .device = device,
          .dtype = at::kFloat};
}

}  // namespace spillway::bench
