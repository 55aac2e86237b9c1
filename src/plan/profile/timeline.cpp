#include "plan/profile/timeline.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/profile/call_key.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// What autograd gave up and saved again was given up for good only the last time.
void keep_last_drops(std::vector<Moment>& moments, ChunkProfile& chunk) {
  std::vector<bool> dropped(chunk.buffers.size());
  std::vector<bool> superfluous(moments.size());
  for (std::size_t i = moments.size(); i-- > 0;) {
    if (moments[i].kind != MomentKind::kDrop) continue;
    superfluous[i] = dropped[to_index(moments[i].index)];
    dropped[to_index(moments[i].index)] = true;
  }
  std::vector<int> new_index(moments.size());
  std::vector<Moment> kept;
  Moment carried;
  bool any = false;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    new_index[i] = static_cast<int>(kept.size());
    Moment moment = moments[i];
    moment.compute_ns += std::exchange(carried.compute_ns, 0);
    if (any) moment.untracked_bytes = std::max(moment.untracked_bytes, carried.untracked_bytes);
    any = superfluous[i];
    if (superfluous[i]) {
      carried = moment;
    } else {
      kept.push_back(moment);
    }
  }
  for (BufferProfile& buffer : chunk.buffers) {
    if (buffer.last_forward_use >= 0)
      buffer.last_forward_use = new_index[to_index(buffer.last_forward_use)];
  }
  moments = std::move(kept);
}

void take_out_unsaved(Bytes granularity, ChunkProfile& chunk) {
  std::vector<int> call_ends(chunk.operators.size(), -1);
  std::vector<int> saved(chunk.buffers.size(), -1);
  for (std::size_t i = 0; i < chunk.timeline.size(); ++i) {
    const Moment& moment = chunk.timeline[i];
    if (moment.kind == MomentKind::kCallEnds)
      call_ends[to_index(moment.index)] = static_cast<int>(i);
    if (moment.kind != MomentKind::kSave) continue;
    int& first = saved[to_index(chunk.sites[to_index(moment.index)].buffer)];
    if (first < 0) first = static_cast<int>(i);
  }
  const std::uint64_t step = std::max<std::uint64_t>(granularity.count(), 1);
  for (const BufferProfile& buffer : chunk.buffers) {
    const int call = buffer.producer.call;
    if (call < 0 || call_ends[to_index(call)] < 0 || !is_step_memory(buffer.fixed)) continue;
    const std::uint64_t bytes = (buffer.size.count() + step - 1) / step * step;
    for (int i = call_ends[to_index(call)] + 1; i <= saved[to_index(buffer.id)]; ++i) {
      chunk.timeline[to_index(i)].untracked_bytes -= static_cast<std::int64_t>(bytes);
    }
  }
}

using MomentKey = std::pair<MomentKind, int>;

}  // namespace

void add_up_times(ChunkProfile& chunk) {
  chunk.forward_ns = 0;
  chunk.backward_ns = 0;
  std::int64_t now = 0;
  bool backward = false;
  for (const Moment& moment : chunk.timeline) {
    now += moment.compute_ns;
    (backward ? chunk.backward_ns : chunk.forward_ns) += moment.compute_ns;
    backward = backward || moment.kind == MomentKind::kBackwardBegins;
    if (moment.kind == MomentKind::kCallBegins) {
      chunk.operators[static_cast<std::size_t>(moment.index)].device_ns = -now;
    } else if (moment.kind == MomentKind::kCallEnds) {
      chunk.operators[static_cast<std::size_t>(moment.index)].device_ns += now;
    }
  }
}

void add_timeline(std::vector<Moment> moments, Bytes granularity, ChunkProfile& chunk) {
  if (moments.empty()) {
    for (BufferProfile& buffer : chunk.buffers) buffer.last_forward_use = -1;
    return;
  }
  keep_last_drops(moments, chunk);
  chunk.timeline = std::move(moments);
  add_up_times(chunk);
  take_out_unsaved(granularity, chunk);
}

std::optional<Profile> with_times(const Profile& profile, const std::vector<TimedPass>& passes) {
  Profile fresh = profile;
  for (ChunkProfile& chunk : fresh.chunks) {
    std::map<MomentKey, std::int64_t> times;
    std::int64_t count = 0;
    for (const TimedPass& pass : passes) {
      if (pass.chunk != chunk.chunk) continue;
      ++count;
      for (const Moment& moment : remapped(*pass.moments, pass.numbers)) {
        times[{moment.kind, moment.index}] += moment.compute_ns;
      }
    }
    if (count == 0) return std::nullopt;
    for (Moment& moment : chunk.timeline) {
      const auto found = times.find({moment.kind, moment.index});
      if (found == times.end() && !is_of_call(moment.kind)) return std::nullopt;
      moment.compute_ns = found == times.end() ? 0 : found->second / count;
    }
    add_up_times(chunk);
  }
  return fresh;
}

}  // namespace spillway
