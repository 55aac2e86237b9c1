/// What the moments of a recorded pass say about it; internal.
#pragma once

#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// Puts `moments` into the chunk, whose operators, buffers and sites are there already, and fills in
/// what follows from them: times of operators, of forward and of backward. Takes bytes of buffers
/// out of `other_bytes` from where they were made to where they were saved: only now it is known
/// that they would be. Of several drops of a buffer the last counts.
/// Without moments nothing has a time.
void add_timeline(std::vector<Moment> moments, Bytes granularity, ChunkProfile& chunk);

}  // namespace spillway
