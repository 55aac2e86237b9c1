#include <algorithm>
#include <set>
#include <utility>

#include "plan/profile/find_layers.hpp"
#include "torch/device/link_speed.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::finish_recording() {
  Profile profile;
  profile.device = device_->torch_device().str();
  profile.fixed = clock_.at_start();
  profile.granularity = device_->granularity();
  for (const auto& pass : passes_) StepClock::end_of(*pass->moments);
  clock_.resolve();
  std::set<int> chunks;
  for (const auto& pass : passes_) {
    // The profile of a chunk is that of its first pass that had a backward.
    if (pass->profiler == nullptr || !pass->profiler->had_backward() ||
        !chunks.insert(pass->key.chunk).second) {
      continue;
    }
    std::vector<Moment> moments;
    if (!clock_.failed() && pass->moments->in_order) moments = own_moments(*pass->moments);
    if (pass->moments->left) pass->profiler->released_with_forward(moments);
    profile.chunks.push_back(pass->profiler->finish(pass->key.chunk, pass->number, *book_,
                                                    call_locations_, std::move(moments),
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
    sharding_.equal.clear();  // It counts the buffers of this profile.
    return;
  }
  never_moved_.add(profile);
  for (ChunkProfile& chunk : profile.chunks) add_later_pass(chunk, profile.granularity);
  find_layers(profile, options_.layers);
  profile.link = measure_link(*device_, *limited_tier_);
  Recording recording;
  recording.schedule = recorded_schedule(chunks);
  if (follower_.on_schedule()) recording.announced = follower_.schedule();
  if (options_.budget) recording.passes = recorded_passes(profile, recording.schedule);
  recording.peak = step_.device_peak;
  recording.profile = std::move(profile);
  if (controller_.adopt_recording(std::move(recording))) begin_fitting();
}

std::vector<RecordedPass> SessionCore::recorded_passes(const Profile& profile,
                                                       const PassSchedule& schedule) const {
  std::vector<RecordedPass> recorded;
  if (schedule.size() <= 2) return recorded;
  for (const auto& pass : passes_) {
    const bool complete =
        pass->profiler != nullptr && pass->moments->backward && pass->moments->in_order;
    const auto chunk = std::ranges::find(profile.chunks, pass->key.chunk, &ChunkProfile::chunk);
    if (!complete || chunk == profile.chunks.end()) continue;
    std::vector<Moment> moments = recorded_moments(*pass->moments);
    // Where sizes change, a step may allocate more than any profiled pass. Without remapping, calls
    // that differ only in their number leave room for that: one value is counted at two positions.
    if (pass->profiler->has_sizes_of(*chunk)) {
      moments = remapped(moments, match_calls(*chunk, calls_of(*pass)));
    }
    recorded.push_back({pass->key.chunk, pass->number, std::move(moments)});
  }
  return recorded;
}

void SessionCore::add_later_pass(ChunkProfile& chunk, Bytes granularity) const {
  if (chunk.timeline.empty()) return;
  const Pass* first = nullptr;  // The profiled pass, if it allocated the gradients.
  for (const auto& [pass, backward] : order_) {
    if (!backward || pass->key.chunk != chunk.chunk || !pass->moments->in_order) continue;
    if (first == nullptr) {
      if (!pass->profiler->empty()) return;
      first = pass.get();
    } else if (pass->profiler->has_sizes_of(chunk)) {
      const std::vector<Moment> moments =
          remapped(own_moments(*pass->moments), match_calls(chunk, calls_of(*pass)));
      chunk.later_untracked_bytes = untracked_bytes(chunk, moments, granularity);
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

std::vector<PassCall> SessionCore::calls_of(const Pass& pass) const {
  std::vector<PassCall> calls;
  for (CallId id = 0; book_ != nullptr && id < book_->calls(); ++id) {
    const Call& call = book_->call(id);
    if (call.pass != pass.number) continue;
    calls.push_back({call.number, call.traits->name, call.saves, call.ordinal});
  }
  return calls;
}

}  // namespace spillway
