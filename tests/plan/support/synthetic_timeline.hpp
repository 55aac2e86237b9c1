/// Made-up timelines for made-up profiles: times and bytes as if the pass had been recorded.
#pragma once

#include <cstdint>

#include "spillway/plan/profile.hpp"

namespace spillway::testing {

struct PassTimes {
  std::int64_t forward_ns = 0;   ///< 0: as long as the chunk's operators take.
  std::int64_t backward_ns = 0;  ///< 0: twice as long as forward.
};

/// Gives every chunk a timeline, and buffers the moments that go with it:
///  - calls run one after another and save the sites that OperatorProfile::saves gives them;
///  - the model holds a value until its last reader ends;
///  - backward does call by call what unpack_order says: unpacks, computes, drops what nobody will
///    unpack again;
///  - a value's gradient lives from its last reader's backward to its maker's.
/// Chunks without sites get one for each buffer, saved by the call that made it.
void add_timelines(Profile& profile, const PassTimes& times = {});

/// A Llama of `layers` layers (hidden 4096, 32 heads, 8 of keys and values, ffn 14336), 8192
/// tokens, bf16, on an H200: about 130 ms of forward and 248 ms of backward for 16 layers.
[[nodiscard]] Profile llama_profile(int layers);

}  // namespace spillway::testing
