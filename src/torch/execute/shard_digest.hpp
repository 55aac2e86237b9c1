/// Words by which ranks see whether they are at the same position; internal.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "spillway/plan/plan.hpp"

namespace spillway {

/// One word for several, never 0.
[[nodiscard]] std::uint64_t word_of(std::initializer_list<std::uint64_t> parts);

/// What the plans of all ranks must have in common, so that they gather the same buffers in the
/// same order: what is done with every buffer, and in which order backward wants them. Windows are
/// not in it: how many gathers are prefetched, the ranks agree on in each step. 0 for a plan that
/// shards nothing.
[[nodiscard]] std::uint64_t shard_digest(const Plan& plan);

}  // namespace spillway
