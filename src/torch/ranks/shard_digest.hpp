/// Words by which the ranks of a shard group see whether they are at the same position; internal.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/torch/shard_group.hpp"

namespace spillway {

/// One word for several, never 0.
[[nodiscard]] std::uint64_t word_of(std::initializer_list<std::uint64_t> parts);

/// Sends this rank's words to all others, as many on every rank. Collective: all ranks ask in the
/// same order. Waits for nobody; read() does. The operators that it takes are the session's own.
[[nodiscard]] std::unique_ptr<ShardGroup::Exchange> ask(ShardGroup& group,
                                                        std::span<const std::uint64_t> words);
[[nodiscard]] std::unique_ptr<ShardGroup::Exchange> ask(ShardGroup& group,
                                                        std::initializer_list<std::uint64_t> words);

/// Whether all ranks sent the same words, and none the zero of a rank that stopped sharding.
[[nodiscard]] bool all_same(const std::vector<std::uint64_t>& words, int ranks);

/// What the plans of all ranks must have in common, so that they gather the same buffers in the
/// same order: what is done with every buffer, and in which order backward wants them. Windows are
/// not in it: how many gathers are prefetched, the ranks agree on in each step. 0 for a plan that
/// shards nothing.
[[nodiscard]] std::uint64_t shard_digest(const Plan& plan);

}  // namespace spillway
