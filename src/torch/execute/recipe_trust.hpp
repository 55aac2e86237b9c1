/// Which recipes may be used: what verification has said about the buffers that they recompute;
/// internal. Under the session's lock.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "torch/graph/signature.hpp"
#include "torch/record/pass.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

class RecipeTrust {
 public:
  using Key = Verification::Key;
  using Layouts = std::unordered_map<int, std::shared_ptr<const ChunkLayout>>;

  struct Answer {
    Trust trust = Trust::kUnread;
    bool first = false;  ///< Nobody has asked for it before.
  };
  [[nodiscard]] Answer ask(Signature recipe);

  /// A buffer was recomputed by the recipe: `differ` as Verification::differs(), of each of its
  /// windows; `made_from` as Verification::add().
  void add(const Key& key, Signature recipe, std::vector<at::Tensor> differ,
           const std::set<Key>& made_from);
  /// As Verification.
  void mark_unrecomputable(const Key& key, const std::string& reason,
                           std::set<Key> made_from = {}) {
    verification_.mark_unrecomputable(key, reason, std::move(made_from));
  }

  /// A replay found that what the recipe starts from is gone: nothing uses it from now on.
  void lose_root(Signature recipe) { recipes_[recipe] = Trust::kRootLost; }

  /// Whether buffers were compared, and nothing is known of it yet.
  [[nodiscard]] bool any_compared() const noexcept { return !compared_.empty(); }
  /// What was compared says nothing.
  void forget_compared() noexcept { compared_.clear(); }
  /// Another plan: what was compared counts the buffers of the last one.
  void plan_replaced();

  /// Waits for the comparisons.
  [[nodiscard]] std::vector<Verification::Failure> read() { return verification_.read(); }
  struct Result {
    std::map<Key, std::string> demoted;  ///< Must not be recomputed any more, and why.
    bool again = false;  ///< A buffer may match now that its mismatched inputs are demoted.
  };
  /// Notes which recipes are trusted from now on.
  [[nodiscard]] Result note(const std::vector<Verification::Failure>& failures,
                            const Layouts& layouts);

 private:
  [[nodiscard]] bool is_mismatched(Signature recipe) const;

  Verification verification_;
  std::unordered_map<Signature, Trust> recipes_;
  std::map<Key, std::set<Signature>> compared_;  // Recipes compared and not read yet.
};

}  // namespace spillway
