#include <algorithm>
#include <utility>

#include "torch/execute/session_core.hpp"
#include "torch/execute/site_match.hpp"

namespace spillway {

SessionCore::PlannedSave SessionCore::decision_for(Pass& pass, const at::Tensor& tensor,
                                                   FixedReason fixed, ValueId value,
                                                   const std::string& scope, Signature signature) {
  if (task_.records()) {
    const int id =
        pass.profiler->save(tensor, fixed, value, {running_operator(), scope}, signature);
    if (fixed != FixedReason::kNone || !never_moved_.contains(pass.key.chunk, signature)) {
      return {pass.next_site++, id, ActionKind::kOffload};
    }
    pass.profiler->fix(id, FixedReason::kOwnedElsewhere);
    return {pass.next_site++, id, ActionKind::kKeep};
  }
  if (pass.layout == nullptr) return {pass.next_site++};
  const bool movable = fixed == FixedReason::kNone;
  const std::optional<std::size_t> site = find_site(pass, tensor, signature, movable);
  if (!site) {
    const std::size_t before = pass.next_site - std::min<std::size_t>(pass.next_site, 1);
    if (!movable) return {before};
    note_unknown_save(pass);
    const bool moves = (options_.budget || current_.plan()->budget) &&
                       !never_moved_.contains(pass.key.chunk, signature);
    return {before, -1, moves ? ActionKind::kOffload : ActionKind::kKeep};
  }
  use_site(pass, *site, signature);
  const int id = pass.layout->sites[*site].buffer;
  if (never_moved_.contains(pass.key.chunk, signature)) return {*site, id, ActionKind::kKeep};
  return {*site, id, pass.layout->action[static_cast<std::size_t>(id)]};
}

void SessionCore::note_unknown_save(Pass& pass) {
  if (std::exchange(pass.match, Match::kUnknownSaves) == Match::kUnknownSaves) return;
  count_fallback("the pass saved other tensors than profiled");
  controller_.note_unknown_saves();
}

void SessionCore::check_matches() {
  if (current_.plan() == nullptr) return;
  for (const auto& [chunk, layout] : layouts_) note_skipped_sites(chunk);
  if (auto learned = with_signatures_of_passes(*current_.plan(), passes_)) {
    current_.revise(*std::move(learned));
  }
}

void SessionCore::note_skipped_sites(int chunk) {
  std::vector<bool> skipped;
  for (const auto& pass : passes_) {
    if (pass->key.chunk != chunk || !pass->backward_begun || pass->layout == nullptr) continue;
    if (pass->as_profiled()) return skipped_.forget(chunk);
    skipped = SkippedSites::in_all(std::move(skipped), *pass);
    // A plan of another model may skip anything, too: without signatures they look the same.
    if (current_.profile() == nullptr && pass->layout->sites_of.empty()) note_unknown_save(*pass);
  }
  if (!skipped_.are_gone(chunk, std::move(skipped)) || controller_.records_next()) return;
  skipped_.forget(chunk);
  controller_.record_again();
  count_fallback("planned tensors were not saved for 16 steps: the next step records");
}

}  // namespace spillway
