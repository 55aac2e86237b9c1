// What RegionRecorder does where a region of a verification step ends.
#include <algorithm>
#include <utility>

#include "torch/execute/region_recorder.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

// All that a recipe repeats is compared, region by region, each value as made from originals. So
// what it makes from its roots has the same bits, too.
void RegionRecorder::end_verified(std::unique_lock<SessionMutex>& lock, Region& region) {
  StreamOrder::note(*region.pass, core_.device_->current_stream());
  core_.streams_.join(*region.pass);
  core_.log_.uses_stream();
  RecipeBook& book = *region.pass->book;
  Candidates candidates;
  for (const std::weak_ptr<SavedBuffer>& each : std::exchange(region.buffers, {})) {
    BufferRef buffer = each.lock();
    if (buffer == nullptr || buffer->state != BufferState::kResident) {
      core_.drop_locked(std::move(buffer));
      continue;
    }
    Candidate& added = candidates.emplace_back();
    added.buffer = std::move(buffer);
    // settle() may have found no recipe.
    const bool planned = added.buffer->verify && !added.buffer->awaited;
    if (!planned || is_changed(region, *added.buffer)) added.outcome = Candidate::Outcome::kFailed;
  }
  std::ranges::stable_sort(candidates, {}, [&](const Candidate& each) {
    return each.buffer->value < 0 ? -1 : book.value(each.buffer->value).maker;
  });
  compare(lock, region, candidates);
  ++totals_.regions;
  for (Candidate& each : candidates) {
    SavedBuffer& buffer = *each.buffer;
    const bool waits = buffer.state == BufferState::kResident && !region.pass->over;
    if (waits && each.outcome == Candidate::Outcome::kMatches && buffer.verify) {
      core_.recipes_.add({region.pass->key.chunk, buffer.id}, buffer.recipe, {each.differs}, {});
      buffer.verify = false;
      buffer.action = ActionKind::kRecompute;
      buffer.windows.clear();
      discard(buffer);
    } else if (waits && buffer.action == ActionKind::kOffload) {
      // Verified when backward reads it, and demoted if it differs then.
      ++totals_.mismatched;
      core_.start_offload(each.buffer);
    }
  }
  for (Candidate& each : candidates) core_.drop_locked(std::move(each.buffer));
}

}  // namespace spillway
