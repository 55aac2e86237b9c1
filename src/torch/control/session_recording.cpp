#include <algorithm>
#include <set>
#include <utility>

#include "plan/profile/find_layers.hpp"
#include "torch/device/link_speed.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::finish_recording(const StepLog& log) {
  Profile profile;
  profile.device = device_->torch_device().str();
  profile.fixed = log.at_start;
  profile.granularity = device_->granularity();
  StepMoments moments = moments_of(log, passes_.size());
  add_times(log, *device_, moments);
  // Also of passes whose profile is not used: later ones save the same.
  for (const auto& pass : passes_) {
    if (pass->profiler != nullptr) never_moved_.add(pass->key.chunk, pass->profiler->saved());
  }
  std::set<int> chunks;
  for (const auto& pass : passes_) {
    // The profile of a chunk is that of its first pass that had a backward.
    if (pass->profiler == nullptr || !pass->profiler->had_backward() ||
        !chunks.insert(pass->key.chunk).second) {
      continue;
    }
    const PassMoments& noted = moments.passes[static_cast<std::size_t>(pass->number)];
    std::vector<Moment> own;
    if (!log.failed && noted.in_order) own = own_moments(noted);
    if (noted.left) pass->profiler->released_with_forward(own);
    profile.chunks.push_back(pass->profiler->finish(pass->key.chunk, pass->number, *book_,
                                                    call_locations_, std::move(own),
                                                    profile.granularity, freed_weights_));
    profile.chunks.back().measured_peak = step_.device_peak;
  }
  idle_chunks_.clear();
  for (const auto& pass : passes_) {
    if (!chunks.contains(pass->key.chunk)) idle_chunks_.insert(pass->key.chunk);
  }
  if (profile.chunks.empty()) {
    controller_.record_again();  // Nothing was trained in this step.
    return;
  }
  const bool asked = task_.cause == RecordingCause::kAsked || current_.profile() == nullptr;
  if (!asked && !current_.is_improved_by(profile)) {
    sharding_.forget_equal();  // It counts the buffers of this profile.
    return;
  }
  for (ChunkProfile& chunk : profile.chunks) add_later_pass(chunk, moments, profile.granularity);
  find_layers(profile, options_.layers);
  profile.link = measure_link(*device_, *limited_tier_);
  Recording recording;
  recording.schedule = recorded_schedule(chunks);
  if (follower_.on_schedule()) recording.announced = follower_.schedule();
  if (options_.budget) recording.passes = recorded_passes(profile, recording.schedule, moments);
  recording.peak = step_.device_peak;
  recording.profile = std::move(profile);
  if (controller_.adopt_recording(std::move(recording))) begin_fitting();
}

std::vector<RecordedPass> SessionCore::recorded_passes(const Profile& profile,
                                                       const PassSchedule& schedule,
                                                       const StepMoments& moments) const {
  std::vector<RecordedPass> recorded;
  if (schedule.size() <= 2) return recorded;
  for (const auto& pass : passes_) {
    const PassMoments& noted = moments.passes[static_cast<std::size_t>(pass->number)];
    const bool complete = pass->profiler != nullptr && noted.backward && noted.in_order;
    const auto chunk = std::ranges::find(profile.chunks, pass->key.chunk, &ChunkProfile::chunk);
    if (!complete || chunk == profile.chunks.end()) continue;
    std::vector<Moment> own = recorded_moments(noted);
    // Where sizes change, a step may allocate more than any profiled pass. Without remapping, calls
    // that differ only in their number leave room for that: one value is counted at two positions.
    if (pass->profiler->has_sizes_of(*chunk)) {
      own = remapped(own, match_calls(*chunk, calls_of(*pass)));
    }
    recorded.push_back({pass->key.chunk, pass->number, std::move(own)});
  }
  return recorded;
}

void SessionCore::add_later_pass(ChunkProfile& chunk, const StepMoments& moments,
                                 Bytes granularity) const {
  if (chunk.timeline.empty()) return;
  const Pass* first = nullptr;  // The profiled pass, if it allocated the gradients.
  for (const auto& [pass, backward] : order_) {
    const PassMoments& noted = moments.passes[static_cast<std::size_t>(pass->number)];
    if (!backward || pass->key.chunk != chunk.chunk || !noted.in_order) continue;
    if (first == nullptr) {
      if (!pass->profiler->empty()) return;
      first = pass.get();
    } else if (pass->profiler->has_sizes_of(chunk)) {
      const std::vector<Moment> later =
          remapped(own_moments(noted), match_calls(chunk, calls_of(*pass)));
      chunk.later_untracked_bytes = untracked_bytes(chunk, later, granularity);
      return;
    }
  }
}

PassSchedule SessionCore::recorded_schedule(const std::set<int>& chunks) const {
  PassSchedule schedule;
  for (const auto& [pass, backward] : order_) {
    if (!pass->backward_begun || !chunks.contains(pass->key.chunk)) continue;
    schedule.push_back({pass->key.chunk, pass->number, backward});
  }
  return schedule;
}

const ChunkProfile* SessionCore::recorded_chunk(int number) const {
  for (const ChunkProfile& chunk : current_.profile()->chunks) {
    if (chunk.chunk == number) return &chunk;
  }
  return nullptr;
}

std::vector<CallKey> SessionCore::calls_of(const Pass& pass) const {
  std::vector<CallKey> calls;
  for (CallId id = 0; book_ != nullptr && id < book_->calls(); ++id) {
    const Call& call = book_->call(id);
    if (call.pass != pass.number) continue;
    // A call that could not be recorded has a number, too.
    calls.resize(static_cast<std::size_t>(call.number) + 1);
    calls.back() = pass.key_of(call);
  }
  return calls;
}

}  // namespace spillway
