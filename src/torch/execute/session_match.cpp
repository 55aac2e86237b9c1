#include <algorithm>
#include <utility>

#include "torch/execute/session_core.hpp"

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

std::vector<bool> skipped_by(const Pass& pass) {
  std::vector<bool> skipped = pass.used_sites;
  skipped.flip();
  if (skipped.empty()) {
    skipped.assign(pass.layout->sites.size(), true);
    std::fill_n(skipped.begin(), pass.next_site, false);
  }
  return skipped;
}

void skip_to(Pass& pass, std::size_t site) {
  for (; pass.reached < site; ++pass.reached) {
    pass.skipped_bytes += pass.layout->sites[pass.reached].kept;
  }
}

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

std::vector<bool> in_both(std::vector<bool> a, const std::vector<bool>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] && b[i];
  return a;
}

}  // namespace

SessionCore::PlannedSave SessionCore::decision_for(Pass& pass, const at::Tensor& tensor,
                                                   FixedReason fixed, ValueId value,
                                                   const std::string& scope, Signature signature) {
  if (task_.records()) {
    const int id =
        pass.profiler->save(tensor, fixed, value, {running_operator(), scope}, signature);
    if (fixed != FixedReason::kNone || !never_moved_.contains({pass.key.chunk, signature})) {
      return {pass.next_site++, id, ActionKind::kOffload};
    }
    pass.profiler->fix(id, FixedReason::kOwnedElsewhere);
    return {pass.next_site++, id, ActionKind::kKeep};
  }
  if (pass.layout == nullptr) return {pass.next_site++};
  const bool movable = fixed == FixedReason::kNone;
  std::optional<std::size_t> site;
  if (is_expected(pass, tensor, signature)) {
    site = pass.next_site;
  } else if (movable || signature != 0) {
    site = find_site(pass, tensor, signature);
  }
  if (!site) {
    const std::size_t before = pass.next_site - std::min<std::size_t>(pass.next_site, 1);
    if (!movable) return {before};
    note_unknown_save(pass);
    const bool budget = options_.budget || current_.plan()->budget;
    return {before, -1, budget ? ActionKind::kOffload : ActionKind::kKeep};
  }
  use_site(pass, *site, signature);
  const int id = pass.layout->sites[*site].buffer;
  return {*site, id, pass.layout->action[static_cast<std::size_t>(id)]};
}

std::optional<std::size_t> SessionCore::find_site(const Pass& pass, const at::Tensor& tensor,
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

void SessionCore::use_site(Pass& pass, std::size_t site, Signature signature) {
  if (site != pass.next_site) {
    if (pass.used_sites.empty()) {
      pass.used_sites.assign(pass.layout->sites.size(), false);
      std::fill_n(pass.used_sites.begin(), pass.next_site, true);
    }
    pass.match = std::max(pass.match, Match::kInAnotherOrder);
  }
  if (!pass.used_sites.empty()) pass.used_sites[site] = true;
  if (site < pass.reached) {
    pass.skipped_bytes -= pass.layout->sites[site].kept;
  } else {
    skip_to(pass, site);
    pass.reached = site + 1;
  }
  if (signature != 0 && pass.layout->sites_of.empty()) pass.found.push_back(signature);
  pass.next_site = site + 1;
}

void SessionCore::note_skipped(Pass& pass) {
  if (pass.layout == nullptr || pass.as_profiled()) return;
  skip_to(pass, pass.layout->sites.size());
  const std::vector<bool> skipped = skipped_by(pass);
  pass.skipped = static_cast<std::size_t>(std::count(skipped.begin(), skipped.end(), true));
}

void SessionCore::note_unknown_save(Pass& pass) {
  if (std::exchange(pass.match, Match::kUnknownSaves) == Match::kUnknownSaves) return;
  count_fallback("the pass saved other tensors than profiled");
  controller_.note_unknown_saves();
}

void SessionCore::check_matches() {
  if (current_.plan() == nullptr) return;
  for (const auto& [chunk, layout] : layouts_) note_skipped_sites(chunk);
  learn_signatures();
}

void SessionCore::learn_signatures() {
  const auto unknown = [](const ChunkPlan& chunk) {
    return chunk.sites.signature.empty() && !chunk.sites.kind.empty();
  };
  if (std::ranges::none_of(current_.plan()->chunks, unknown)) return;
  Plan plan = *current_.plan();
  bool learned = false;
  for (ChunkPlan& chunk : plan.chunks) {
    if (!unknown(chunk)) continue;
    const auto pass = std::ranges::find_if(passes_, [&](const auto& each) {
      return each->key.chunk == chunk.chunk && each->as_profiled() &&
             each->found.size() == chunk.sites.kind.size();
    });
    if (pass == passes_.end()) continue;
    chunk.sites.signature = (*pass)->found;
    learned = true;
  }
  if (learned) current_.revise(std::move(plan));
}

void SessionCore::note_skipped_sites(int chunk) {
  std::vector<bool> skipped;
  for (const auto& pass : passes_) {
    if (pass->key.chunk != chunk || !pass->backward_begun || pass->layout == nullptr) continue;
    if (pass->as_profiled()) return void(skipped_.erase(chunk));
    skipped = skipped.empty() ? skipped_by(*pass) : in_both(std::move(skipped), skipped_by(*pass));
    // A plan of another model may skip anything, too: without signatures they look the same.
    if (current_.profile() == nullptr && pass->layout->sites_of.empty()) note_unknown_save(*pass);
  }
  if (skipped.empty()) return;
  Skipped& all = skipped_[chunk];
  std::vector<bool> still = all.steps > 0 ? in_both(all.sites, skipped) : skipped;
  if (!any(still)) {
    still = std::move(skipped);
    all.steps = 0;
  }
  if (!any(still)) return void(skipped_.erase(chunk));
  all.sites = std::move(still);
  if (++all.steps < kSkippedSteps || controller_.records_next()) return;
  skipped_.erase(chunk);
  controller_.record_again();
  count_fallback("planned tensors were not saved for 16 steps: the next step records");
}

bool SessionCore::covers_more(const Profile& fresh) const {
  std::map<std::pair<int, Signature>, int> left;
  int lost = 0;
  int gained = 0;
  for (const ChunkProfile& chunk : current_.profile()->chunks) {
    for (const SiteProfile& site : chunk.sites) ++left[{chunk.chunk, site.signature}];
    lost += static_cast<int>(chunk.sites.size());
  }
  for (const ChunkProfile& chunk : fresh.chunks) {
    for (const SiteProfile& site : chunk.sites) {
      const auto found = left.find({chunk.chunk, site.signature});
      if (found != left.end() && found->second-- > 0) {
        --lost;
      } else {
        ++gained;
      }
    }
  }
  return gained > 0 && gained >= lost;
}

}  // namespace spillway
