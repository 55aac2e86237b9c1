/// Buffers that must stay where they are, because of what steps have found to be done to them;
/// internal. Under the session's lock.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "torch/graph/signature.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

class NeverMoved {
 public:
  using Key = Verification::Key;
  using Found = std::map<Key, std::string>;

  /// What is saved with the signature is neither moved by plans nor in recording steps.
  [[nodiscard]] bool contains(int chunk, Signature signature) const {
    return signatures_.contains({chunk, signature});
  }
  void add(int chunk, Signature signature) { signatures_.emplace(chunk, signature); }
  /// What the recording step has found in a pass.
  void add(int chunk, const ChunkProfile& pass);
  [[nodiscard]] bool empty() const noexcept { return signatures_.empty(); }

  /// A buffer of the current plan is kept from the next step on, and why.
  void find(const Key& key, const std::string& reason) { found_[key] = reason; }
  /// What was found since the last call, by chunk and buffer.
  [[nodiscard]] Found take_found() { return std::exchange(found_, {}); }
  /// Keeps it in a profile.
  static void keep(const Found& found, Profile& profile);
  /// Keeps it in the current plan, and in later ones. Returns the names of buffers and reasons.
  [[nodiscard]] std::vector<std::string> keep(const Found& found, Plan& plan);
  /// Keeps in another plan what was found under earlier ones. Returns whether that was to be moved.
  [[nodiscard]] bool amend(Plan& plan) const;

 private:
  Found found_;
  std::set<std::pair<int, Signature>> signatures_;  // By chunk.
};

}  // namespace spillway
