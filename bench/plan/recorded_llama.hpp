/// The profile that a session records of Llama-shaped layers on an H200, made up: every operator
/// call that a recorder sees, composites and views too, with the bytes of the real tensors and the
/// times of a roofline.
#pragma once

#include "spillway/plan/profile.hpp"

namespace spillway::bench {

/// One chunk: an embedding, `layers` layers (hidden 4096, 32 heads, 8 of keys and values, ffn
/// 14336), a head of 32,000 tokens, and the loss; 8192 tokens, bf16. 16 layers save 23.9 GiB and
/// take 378 ms.
[[nodiscard]] Profile recorded_llama(int layers);

}  // namespace spillway::bench
