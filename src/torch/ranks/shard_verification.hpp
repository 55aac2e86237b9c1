/// Which buffers are equal on all ranks of a shard group: only those may be sharded; internal.
///
/// A step collects digests of what it saves, which are compared at its end. In a step that verifies
/// they are of what the plan shards, and say which values, by signature, are trusted from then on;
/// in a recording step they are of everything, and say what the planner may shard.
///
/// Order:   finish() and compare_all() are collective; the rest is this rank's own. What the ranks
///          add may differ: then nothing is learned.
/// Threads: one at a time; the session's lock.
/// Errors:  of the group, where another rank does not take part, and of the device. What was known
///          before stays known.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/plan/plan.hpp"
#include "spillway/torch/shard_group.hpp"
#include "torch/graph/signature.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

class ShardVerification {
 public:
  using Key = Verification::Key;

  /// kWanted: a step must verify before anything is sharded. kDone: one has.
  enum class State { kWanted, kDone };

  [[nodiscard]] State state() const noexcept { return state_; }
  /// There is another plan or group, or a value that was not verified.
  void want() noexcept { state_ = State::kWanted; }

  /// `digest`: of the buffer's bits, one number of type long on the device.
  void add(const Key& key, at::Tensor digest) { digests_.emplace_back(key, std::move(digest)); }
  /// The same for a buffer that the plan shards.
  void add(const Key& key, at::Tensor digest, Signature signature);
  /// Forgets the digests of a step that is over, or did not begin.
  void clear();

  /// At the end of a step that verifies: the buffers of the plan that must not be sharded. Empty:
  /// the ranks saved different buffers, and are to verify again. Blocks.
  [[nodiscard]] std::optional<std::set<Key>> finish(ShardGroup& group);
  /// At the end of a recording step: finds equal(). False: the ranks saved different buffers.
  /// Blocks.
  [[nodiscard]] bool compare_all(ShardGroup& group);

  /// What verification said about all buffers with the signature. Where it said nothing, the next
  /// step is to verify.
  [[nodiscard]] Trust trust_in(Signature signature);

  /// By chunk and buffer of the profile: whether it was equal on all ranks in the last recording
  /// step. Empty: nothing was compared, or nothing was equal.
  [[nodiscard]] std::vector<std::vector<bool>> equal(const Profile& profile) const;
  void forget_equal() noexcept { equal_.clear(); }

 private:
  [[nodiscard]] std::optional<std::set<Key>> unequal(ShardGroup& group) const;
  [[nodiscard]] std::set<Key> note_trust(std::set<Key> mismatched);

  State state_ = State::kWanted;
  std::vector<std::pair<Key, at::Tensor>> digests_;
  std::map<Key, std::set<Signature>> signatures_;  // Of the buffers that are verified.
  std::unordered_map<Signature, Trust> trust_;
  std::set<Signature> asked_;  // For which a verification was wanted.
  std::set<Key> equal_;
};

/// The plan with `which` not sharded, and the buffers' names with the reason.
struct Unsharded {
  Plan plan;
  std::vector<std::string> names;
};
[[nodiscard]] Unsharded without_shards(const Plan& plan,
                                       const std::set<ShardVerification::Key>& which);

/// Why they are not.
inline constexpr const char* kUnequalOnRanks = "it is not equal on all ranks of the shard group";

}  // namespace spillway
