/// What the ranks of a shard group do in a step, found from what each of them may do; internal.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "spillway/torch/shard_group.hpp"

namespace spillway {

/// The same on all ranks of the group, from the begin of a step to its end.
enum class ShardMode : std::uint8_t {
  kNone,       ///< Nothing is sharded.
  kComparing,  ///< The step records; all saved buffers are compared, for the planner.
  kVerifying,  ///< The buffers planned to be sharded are compared; none is sharded.
  kSharding,   ///< What was verified is sharded.
};

[[nodiscard]] std::string_view to_string(ShardMode mode) noexcept;

/// What one rank may do in the step that begins.
struct ShardVote {
  std::uint64_t plan = 0;  ///< shard_digest() of its plan; 0: it records, or shards nothing.
  bool verify = false;     ///< Its plan must be verified in this step.
  std::int64_t prefetch_window = 0;  ///< Bytes.
  bool compare = false;              ///< It records, and would compare all that is saved.
  std::uint64_t gathers = 0;         ///< Which buffers it has gathered so far, and in which order.
};

struct ShardAgreement {
  ShardMode mode = ShardMode::kNone;
  bool same_plan = false;            ///< All ranks have one plan, which shards.
  std::int64_t prefetch_window = 0;  ///< The smallest.
};

/// By these rules, in this order:
///   all ranks compare                              kComparing
///   a rank has no plan that shards, or another one kNone
///   a rank must verify its plan                    kVerifying
///   otherwise                                      kSharding
/// Precondition: at least one vote; a rank that compares has no plan.
[[nodiscard]] ShardAgreement agreement_of(const std::vector<ShardVote>& votes);

/// Exchanges votes. Collective; blocks until all ranks have voted.
/// Errors: VerificationError, on all ranks, if they have gathered different buffers: gathers of
///         equal sizes would have mixed their parts, and go on doing so.
[[nodiscard]] ShardAgreement agree(ShardGroup& group, const ShardVote& mine);

}  // namespace spillway
