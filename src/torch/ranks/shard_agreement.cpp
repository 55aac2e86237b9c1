#include "torch/ranks/shard_agreement.hpp"

#include <algorithm>
#include <string>

#include "spillway/core/error.hpp"
#include "torch/ranks/shard_digest.hpp"

namespace spillway {
namespace {

[[noreturn]] void throw_other_gathers(std::size_t rank) {
  throw VerificationError(
      "shard", "rank " + std::to_string(rank) +
                   " of the shard group has gathered other buffers than rank 0, or in another "
                   "order, so buffers were made of parts of different ones and the last gradients "
                   "may be wrong on all ranks of the group; a rank may have left a backward by an "
                   "exception, or run its passes in another order. End the job, or discard the "
                   "gradients and give all ranks' sessions a new group");
}

}  // namespace

std::string_view to_string(ShardMode mode) noexcept {
  switch (mode) {
    case ShardMode::kNone:
      return "none";
    case ShardMode::kComparing:
      return "comparing";
    case ShardMode::kVerifying:
      return "verifying";
    case ShardMode::kSharding:
      return "sharding";
  }
  return "unknown";
}

ShardAgreement agreement_of(const std::vector<ShardVote>& votes) {
  const ShardVote& first = votes.front();
  ShardAgreement agreed;
  agreed.same_plan = first.plan != 0 && std::ranges::all_of(votes, [&](const ShardVote& each) {
                       return each.plan == first.plan;
                     });
  agreed.prefetch_window =
      std::ranges::min_element(votes, {}, &ShardVote::prefetch_window)->prefetch_window;
  if (std::ranges::all_of(votes, &ShardVote::compare)) {
    agreed.mode = ShardMode::kComparing;
  } else if (agreed.same_plan) {
    agreed.mode = std::ranges::any_of(votes, &ShardVote::verify) ? ShardMode::kVerifying
                                                                 : ShardMode::kSharding;
  }
  return agreed;
}

ShardAgreement agree(ShardGroup& group, const ShardVote& mine) {
  const std::vector<std::uint64_t> words =
      ask(group, {mine.plan, mine.verify ? std::uint64_t{1} : 0,
                  static_cast<std::uint64_t>(mine.prefetch_window),
                  mine.compare ? std::uint64_t{1} : 0, mine.gathers})
          ->read();
  std::vector<ShardVote> votes;
  for (std::size_t i = 0; i < words.size(); i += 5) {
    votes.push_back({words[i], words[i + 1] != 0, static_cast<std::int64_t>(words[i + 2]),
                     words[i + 3] != 0, words[i + 4]});
  }
  for (std::size_t i = 1; i < votes.size(); ++i) {
    if (votes[i].gathers != votes[0].gathers) throw_other_gathers(i);
  }
  return agreement_of(votes);
}

}  // namespace spillway
