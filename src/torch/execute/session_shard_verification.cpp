#include <algorithm>
#include <cstring>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "torch/execute/session_core.hpp"
#include "torch/execute/shard_digest.hpp"

namespace spillway {
namespace {

constexpr const char* kUnequal = "it is not equal on all ranks of the shard group";

/// The digests that are not the same on all ranks; `words` has the digests of all ranks, by rank.
std::set<Verification::Key> unequal(
    const std::vector<std::pair<Verification::Key, at::Tensor>>& digests,
    const std::vector<std::uint64_t>& words) {
  std::set<Verification::Key> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t which = i % digests.size();
    if (words[i] != words[which]) found.insert(digests[which].first);
  }
  return found;
}

}  // namespace

std::optional<std::set<Verification::Key>> SessionCore::compare_digests() {
  const RecordingPause pause;
  const auto& digests = sharding_.digests;
  std::uint64_t which = 0;
  for (const auto& [key, digest] : digests) {
    which = word_of(
        {which, static_cast<std::uint64_t>(key.chunk), static_cast<std::uint64_t>(key.buffer)});
  }
  const std::vector<std::uint64_t> lists = ask({digests.size(), which})->read();
  for (std::size_t i = 2; i < lists.size(); ++i) {
    if (lists[i] == lists[i % 2]) continue;
    count_fallback("sharding could not be verified: the ranks saved different buffers");
    return std::nullopt;
  }
  if (digests.empty()) return std::set<Verification::Key>();
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> numbers;
  for (const auto& [key, digest] : digests) numbers.push_back(digest);
  const at::Tensor host = at::stack(numbers).cpu();
  std::vector<std::uint64_t> mine(digests.size());
  std::memcpy(mine.data(), host.data_ptr(), host.nbytes());
  return unequal(digests, sharding_.group->exchange(mine)->read());
}

void SessionCore::finish_comparison() {
  const std::optional<std::set<Verification::Key>> mismatched = compare_digests();
  if (!mismatched) return;
  sharding_.equal.clear();
  for (const auto& [key, digest] : sharding_.digests) {
    if (!mismatched->contains(key)) sharding_.equal.insert(key);
  }
}

std::set<Verification::Key> SessionCore::note_equal(std::set<Verification::Key> mismatched) {
  for (const auto& [key, signatures] : sharding_.signatures) {
    for (const Signature each : signatures) {
      if (mismatched.contains(key)) {
        sharding_.trust[each] = Trust::kMismatched;
      } else {
        sharding_.trust.try_emplace(each, Trust::kVerified);
      }
    }
  }
  // What shares a signature is trusted together or not at all.
  for (const auto& [key, signatures] : sharding_.signatures) {
    const bool trusted = std::ranges::all_of(
        signatures, [&](Signature each) { return sharding_.trust.at(each) == Trust::kVerified; });
    if (!trusted) mismatched.insert(key);
  }
  sharding_.signatures.clear();
  return mismatched;
}

void SessionCore::finish_shard_verification() {
  const std::optional<std::set<Verification::Key>> found = compare_digests();
  if (!found) return;
  sharding_.verified = true;
  const std::set<Verification::Key> mismatched = note_equal(*found);
  if (mismatched.empty()) return;
  Plan plan = *current_.plan();
  const auto demote = [&](Action& action, std::string& reason, const std::string& name) {
    action.shard = false;
    reason += std::string(", but ") + kUnequal;
    sharding_.mismatched.push_back(name + ": " + kUnequal);
    count_fallback(std::string("not sharded: ") + kUnequal);
  };
  for (ChunkPlan& chunk : plan.chunks) {
    for (Decision& each : chunk.decisions) {
      if (!mismatched.contains({chunk.chunk, each.buffer})) continue;
      demote(each.action, each.reason, each.position.scope + " " + each.position.saver);
    }
    for (std::size_t i = 0; i < chunk.anchors.size(); ++i) {
      Anchor& each = chunk.anchors[i];
      const auto id = static_cast<int>(chunk.decisions.size() + i);
      if (mismatched.contains({chunk.chunk, id}))
        demote(each.action, each.reason, each.scope + " " + each.name);
    }
  }
  current_.revise(std::move(plan));
}

ShardModel SessionCore::shard_model() const {
  return {.ranks = sharding_.group != nullptr ? sharding_.group->size() : 1,
          .bytes_per_second = sharding_.speed};
}

std::optional<ShardTotals> SessionCore::shard_report() const {
  if (sharding_.group == nullptr && sharding_.digest == 0 && sharding_.mismatched.empty()) {
    return std::nullopt;
  }
  ShardTotals totals = last_step_.shard;
  totals.ranks = sharding_.group != nullptr ? sharding_.group->size() : 0;
  totals.mismatched = sharding_.mismatched;
  return totals;
}

}  // namespace spillway
