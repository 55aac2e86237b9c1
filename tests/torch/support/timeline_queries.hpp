/// Queries on a profiled timeline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway::testing {

/// The only moment of that kind and index; -1 without one.
inline int moment_of(const ChunkProfile& chunk, MomentKind kind, int index) {
  const auto found = std::find_if(
      chunk.timeline.begin(), chunk.timeline.end(),
      [&](const Moment& moment) { return moment.kind == kind && moment.index == index; });
  return found == chunk.timeline.end() ? -1 : static_cast<int>(found - chunk.timeline.begin());
}

/// The peak of a step that keeps everything, beyond what is allocated before it, computed from the
/// timeline of the first chunk.
inline std::int64_t kept_peak(const Profile& profile) {
  const ChunkProfile& chunk = profile.chunks.at(0);
  const auto step =
      static_cast<std::int64_t>(std::max<std::uint64_t>(profile.granularity.count(), 1));
  std::vector<std::int64_t> total;
  for (const Moment& moment : chunk.timeline) total.push_back(moment.untracked_bytes);
  for (const BufferProfile& buffer : chunk.buffers) {
    if (!is_step_memory(buffer.fixed)) continue;
    int allocated = static_cast<int>(chunk.timeline.size());
    for (std::size_t site = 0; site < chunk.sites.size(); ++site) {
      if (chunk.sites[site].buffer != buffer.id) continue;
      allocated = std::min(allocated, moment_of(chunk, MomentKind::kSave, static_cast<int>(site)));
    }
    if (buffer.producer.call >= 0) {
      allocated =
          std::min(allocated, moment_of(chunk, MomentKind::kCallEnds, buffer.producer.call));
    }
    const int dropped = moment_of(chunk, MomentKind::kDrop, buffer.id);
    const auto bytes = static_cast<std::int64_t>(buffer.size.count());
    for (int i = allocated + 1; i <= dropped; ++i) {
      total[static_cast<std::size_t>(i)] += (bytes + step - 1) / step * step;
    }
  }
  return *std::max_element(total.begin(), total.end());
}

}  // namespace spillway::testing
