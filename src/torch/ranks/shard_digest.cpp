#include "torch/ranks/shard_digest.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "spillway/plan/shard.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

void add(Digest& digest, int number) { digest.add(static_cast<std::uint64_t>(number)); }

void add(Digest& digest, const Action& action) {
  add(digest, static_cast<int>(action.kind));
  add(digest, action.shard ? 1 : 0);
}

bool shards(const ChunkPlan& chunk) {
  const auto shards = [](const auto& each) { return each.action.shard; };
  return std::ranges::any_of(chunk.decisions, shards) || std::ranges::any_of(chunk.anchors, shards);
}

}  // namespace

std::uint64_t word_of(std::initializer_list<std::uint64_t> parts) {
  return std::max<std::uint64_t>(1, digest_of(parts));
}

std::unique_ptr<ShardGroup::Exchange> ask(ShardGroup& group, std::span<const std::uint64_t> words) {
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  return group.exchange(words);
}

std::unique_ptr<ShardGroup::Exchange> ask(ShardGroup& group,
                                          std::initializer_list<std::uint64_t> words) {
  return ask(group, std::span(words.begin(), words.size()));
}

bool all_same(const std::vector<std::uint64_t>& words, int ranks) {
  const std::size_t count = words.size() / static_cast<std::size_t>(ranks);
  if (words.empty() || words[0] == 0) return false;
  for (std::size_t i = count; i < words.size(); ++i) {
    if (words[i] != words[i % count]) return false;
  }
  return true;
}

std::uint64_t shard_digest(const Plan& plan) {
  if (std::ranges::none_of(plan.chunks, shards)) return 0;
  Digest digest;
  digest.add_field(plan.structure);
  for (const ChunkPlan& chunk : plan.chunks) {
    add(digest, chunk.chunk);
    for (const Decision& decision : chunk.decisions) {
      add(digest, decision.action);
      add(digest, static_cast<int>(decision.fallback));
    }
    for (const std::uint64_t signature : chunk.sites.signature) digest.add(signature);
    for (const Anchor& anchor : chunk.anchors) {
      add(digest, anchor.call);
      add(digest, anchor.output);
      add(digest, anchor.action);
    }
    for (const int id : chunk.need_order) add(digest, id);
    for (const int due : gather_order(chunk).due) add(digest, due);
  }
  return std::max<std::uint64_t>(1, digest.value());
}

}  // namespace spillway
