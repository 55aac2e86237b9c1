#include "torch/execute/site_match.hpp"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Sites that no pass of so many steps in a row has saved are gone for good. A layer that is left
/// out at random comes back sooner.
constexpr int kSkippedSteps = 16;

bool has_type(const ChunkLayout::SiteShape& site, const at::Tensor& tensor) {
  return site.dtype == tensor.scalar_type() &&
         site.dimensions == static_cast<std::size_t>(tensor.dim());
}

bool is_unused(const Pass& pass, std::size_t site) {
  return pass.used_sites.empty() ? site >= pass.next_site : !pass.used_sites[site];
}

bool is_expected(const Pass& pass, const at::Tensor& tensor, Signature signature) {
  if (pass.next_site >= pass.layout->sites.size()) return false;
  const ChunkLayout::SiteShape& site = pass.layout->sites[pass.next_site];
  const bool same = signature == 0 || site.signature == 0 || site.signature == signature;
  return same && has_type(site, tensor) && is_unused(pass, pass.next_site);
}

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

std::vector<bool> in_both(std::vector<bool> a, const std::vector<bool>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] && b[i];
  return a;
}

/// The site of a tensor that is not at the expected one: where its signature is known the next one
/// with it that this pass has not saved yet, else the next one of its type.
std::optional<std::size_t> find_other_site(const Pass& pass, const at::Tensor& tensor,
                                           Signature signature) {
  const ChunkLayout& layout = *pass.layout;
  const auto fits = [&](std::size_t site) {
    return is_unused(pass, site) && has_type(layout.sites[site], tensor);
  };
  if (signature != 0 && !layout.sites_of.empty()) {
    const auto same = layout.sites_of.find(signature);
    if (same == layout.sites_of.end()) return std::nullopt;
    const std::vector<std::size_t>& sites = same->second;
    const auto next = std::lower_bound(sites.begin(), sites.end(), pass.next_site);
    auto found = std::find_if(next, sites.end(), fits);
    if (found == sites.end()) {
      found = std::find_if(sites.begin(), next, fits);
      if (found == next) return std::nullopt;
    }
    return *found;
  }
  for (std::size_t site = pass.next_site; site < layout.sites.size(); ++site) {
    if (fits(site)) return site;
  }
  if (pass.used_sites.empty()) return std::nullopt;
  for (std::size_t site = 0; site < pass.next_site; ++site) {
    if (fits(site)) return site;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> find_site(const Pass& pass, const at::Tensor& tensor,
                                     Signature signature, bool movable) {
  if (is_expected(pass, tensor, signature)) return pass.next_site;
  if (!movable && signature == 0) return std::nullopt;
  return find_other_site(pass, tensor, signature);
}

void use_site(Pass& pass, std::size_t site, Signature signature) {
  if (site != pass.next_site) {
    if (pass.used_sites.empty()) {
      pass.used_sites.assign(pass.layout->sites.size(), false);
      std::fill_n(pass.used_sites.begin(), pass.next_site, true);
    }
    pass.match = std::max(pass.match, Match::kInAnotherOrder);
  }
  if (!pass.used_sites.empty()) pass.used_sites[site] = true;
  if (signature != 0 && pass.layout->sites_of.empty()) pass.found.push_back(signature);
  pass.next_site = site + 1;
}

std::vector<bool> skipped_by(const Pass& pass) {
  std::vector<bool> skipped = pass.used_sites;
  skipped.flip();
  if (skipped.empty()) {
    skipped.assign(pass.layout->sites.size(), true);
    std::fill_n(skipped.begin(), pass.next_site, false);
  }
  return skipped;
}

bool SkippedSites::are_gone(int chunk, std::vector<bool> skipped) {
  if (skipped.empty()) return false;
  Skipped& all = skipped_[chunk];
  std::vector<bool> still = all.steps > 0 ? in_both(all.sites, skipped) : skipped;
  if (!any(still)) {
    still = std::move(skipped);
    all.steps = 0;
  }
  if (!any(still)) {
    skipped_.erase(chunk);
    return false;
  }
  all.sites = std::move(still);
  return ++all.steps >= kSkippedSteps;
}

std::vector<bool> SkippedSites::in_all(std::vector<bool> skipped, const Pass& pass) {
  return skipped.empty() ? skipped_by(pass) : in_both(std::move(skipped), skipped_by(pass));
}

std::optional<Plan> with_signatures_of_passes(const Plan& plan,
                                              const std::vector<std::shared_ptr<Pass>>& passes) {
  const auto unknown = [](const ChunkPlan& chunk) {
    return chunk.sites.signature.empty() && !chunk.sites.kind.empty();
  };
  if (std::ranges::none_of(plan.chunks, unknown)) return std::nullopt;
  Plan learned = plan;
  bool any_learned = false;
  for (ChunkPlan& chunk : learned.chunks) {
    if (!unknown(chunk)) continue;
    const auto pass = std::ranges::find_if(passes, [&](const auto& each) {
      return each->key.chunk == chunk.chunk && each->as_profiled() &&
             each->found.size() == chunk.sites.kind.size();
    });
    if (pass == passes.end()) continue;
    chunk.sites.signature = (*pass)->found;
    any_learned = true;
  }
  if (!any_learned) return std::nullopt;
  return learned;
}

}  // namespace spillway
