#include "torch/ranks/shard_verification.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "torch/hooks/call_recorder.hpp"
#include "torch/ranks/shard_digest.hpp"

namespace spillway {

void ShardVerification::add(const Key& key, at::Tensor digest, Signature signature) {
  add(key, std::move(digest));
  signatures_[key].insert(signature);
}

void ShardVerification::clear() {
  digests_.clear();
  signatures_.clear();
}

std::optional<std::set<ShardVerification::Key>> ShardVerification::unequal(
    ShardGroup& group) const {
  const RecordingPause pause;  // Reading words may run operators.
  const at::NoGradGuard no_gradients;
  std::uint64_t which = 0;
  for (const auto& [key, digest] : digests_) {
    which = word_of(
        {which, static_cast<std::uint64_t>(key.chunk), static_cast<std::uint64_t>(key.buffer)});
  }
  const std::vector<std::uint64_t> lists = ask(group, {digests_.size(), which})->read();
  for (std::size_t i = 2; i < lists.size(); ++i) {
    if (lists[i] != lists[i % 2]) return std::nullopt;
  }
  std::set<Key> found;
  if (digests_.empty()) return found;
  std::vector<at::Tensor> numbers;
  for (const auto& [key, digest] : digests_) numbers.push_back(digest);
  const at::Tensor host = at::stack(numbers).cpu();
  std::vector<std::uint64_t> mine(digests_.size());
  std::memcpy(mine.data(), host.data_ptr(), host.nbytes());
  const std::vector<std::uint64_t> words = ask(group, mine)->read();
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t at = i % digests_.size();
    if (words[i] != words[at]) found.insert(digests_[at].first);
  }
  return found;
}

std::optional<std::set<ShardVerification::Key>> ShardVerification::finish(ShardGroup& group) {
  std::optional<std::set<Key>> mismatched = unequal(group);
  if (!mismatched) return std::nullopt;
  state_ = State::kDone;
  return note_trust(std::move(*mismatched));
}

std::set<ShardVerification::Key> ShardVerification::note_trust(std::set<Key> mismatched) {
  for (const auto& [key, signatures] : signatures_) {
    for (const Signature each : signatures) {
      if (mismatched.contains(key)) {
        trust_[each] = Trust::kMismatched;
      } else {
        trust_.try_emplace(each, Trust::kVerified);
      }
    }
  }
  // What shares a signature is trusted together or not at all.
  for (const auto& [key, signatures] : signatures_) {
    const bool trusted = std::ranges::all_of(
        signatures, [&](Signature each) { return trust_.at(each) == Trust::kVerified; });
    if (!trusted) mismatched.insert(key);
  }
  signatures_.clear();
  return mismatched;
}

bool ShardVerification::compare_all(ShardGroup& group) {
  const std::optional<std::set<Key>> mismatched = unequal(group);
  if (!mismatched) return false;
  equal_.clear();
  for (const auto& [key, digest] : digests_) {
    if (!mismatched->contains(key)) equal_.insert(key);
  }
  return true;
}

Trust ShardVerification::trust_in(Signature signature) {
  const auto found = trust_.find(signature);
  if (found != trust_.end()) return found->second;
  if (asked_.insert(signature).second) want();
  return Trust::kUnread;
}

std::vector<std::vector<bool>> ShardVerification::equal(const Profile& profile) const {
  std::vector<std::vector<bool>> equal;
  if (equal_.empty()) return equal;
  for (const ChunkProfile& chunk : profile.chunks) {
    std::vector<bool>& of = equal.emplace_back();
    for (const BufferProfile& buffer : chunk.buffers) {
      of.push_back(equal_.contains({chunk.chunk, buffer.id}));
    }
  }
  return equal;
}

Unsharded without_shards(const Plan& plan, const std::set<ShardVerification::Key>& which) {
  Unsharded found{plan, {}};
  const auto demote = [&](Action& action, std::string& reason, const std::string& name) {
    action.shard = false;
    reason += std::string(", but ") + kUnequalOnRanks;
    found.names.push_back(name + ": " + kUnequalOnRanks);
  };
  for (ChunkPlan& chunk : found.plan.chunks) {
    for (Decision& each : chunk.decisions) {
      if (!which.contains({chunk.chunk, each.buffer})) continue;
      demote(each.action, each.reason, each.position.scope + " " + each.position.saver);
    }
    for (std::size_t i = 0; i < chunk.anchors.size(); ++i) {
      Anchor& each = chunk.anchors[i];
      const auto id = static_cast<int>(chunk.decisions.size() + i);
      if (which.contains({chunk.chunk, id}))
        demote(each.action, each.reason, each.scope + " " + each.name);
    }
  }
  return found;
}

}  // namespace spillway
