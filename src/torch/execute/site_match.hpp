/// Matches what a pass saves with the sites of its layout; internal. Under the session's lock.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/plan/plan.hpp"
#include "torch/record/pass.hpp"

namespace spillway {

/// The site at which the pass saves the tensor; empty: it was not profiled. A tensor that is not
/// movable and has no signature is only looked for at the next site.
[[nodiscard]] std::optional<std::size_t> find_site(const Pass& pass, const at::Tensor& tensor,
                                                   Signature signature, bool movable);
/// The pass saves what is at the site.
void use_site(Pass& pass, std::size_t site, Signature signature);
/// By site: whether the pass has not saved it.
[[nodiscard]] std::vector<bool> skipped_by(const Pass& pass);

/// Sites that steps do not save any more.
class SkippedSites {
 public:
  /// `skipped`: those that no pass of the chunk has saved in the step that ends. Returns whether
  /// some have not been saved for so many steps that they are gone for good.
  [[nodiscard]] bool are_gone(int chunk, std::vector<bool> skipped);
  void forget(int chunk) { skipped_.erase(chunk); }
  void clear() noexcept { skipped_.clear(); }

  /// Those of `skipped` that the pass has skipped, too; empty: of no pass yet.
  [[nodiscard]] static std::vector<bool> in_all(std::vector<bool> skipped, const Pass& pass);

 private:
  struct Skipped {
    std::vector<bool> sites;
    int steps = 0;
  };
  std::map<int, Skipped> skipped_;  // By chunk.
};

/// The plan with the signatures that passes of the step have found, for chunks that have none;
/// empty: there is nothing to add.
[[nodiscard]] std::optional<Plan> with_signatures_of_passes(
    const Plan& plan, const std::vector<std::shared_ptr<Pass>>& passes);

}  // namespace spillway
