#include "torch/ranks/shard_agreement.hpp"

#include <algorithm>

#include "torch/ranks/shard_digest.hpp"

namespace spillway {

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
      ask(group,
          {mine.plan, mine.verify ? std::uint64_t{1} : 0,
           static_cast<std::uint64_t>(mine.prefetch_window), mine.compare ? std::uint64_t{1} : 0})
          ->read();
  std::vector<ShardVote> votes;
  for (std::size_t i = 0; i < words.size(); i += 4) {
    votes.push_back(
        {words[i], words[i + 1] != 0, static_cast<std::int64_t>(words[i + 2]), words[i + 3] != 0});
  }
  return agreement_of(votes);
}

}  // namespace spillway
