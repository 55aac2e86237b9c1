#include "plan/simulate/later_passes.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "plan/profile/timeline.hpp"
#include "spillway/core/index.hpp"
#include "spillway/plan/rules.hpp"
#include "spillway/plan/simulate.hpp"

namespace spillway {
namespace {

/// Bytes of a chunk's saved buffers, if all are kept: by moment.
class KeptBytes {
 public:
  KeptBytes(const ChunkProfile& chunk, Bytes granularity)
      : at_(chunk.timeline.size() + 1), backward_(0) {
    std::vector<int> allocated(chunk.buffers.size(), -1);
    std::vector<int> dropped(chunk.buffers.size(), static_cast<int>(chunk.timeline.size()) - 1);
    for (std::size_t i = 0; i < chunk.timeline.size(); ++i) {
      const Moment& moment = chunk.timeline[i];
      const auto now = static_cast<int>(i);
      if (moment.kind == MomentKind::kBackwardBegins) backward_ = now;
      if (moment.kind == MomentKind::kDrop) dropped[to_index(moment.index)] = now;
      if (moment.kind == MomentKind::kSave) {
        first(allocated[to_index(chunk.sites[to_index(moment.index)].buffer)], now);
      }
      if (moment.kind != MomentKind::kCallEnds) continue;
      for (const BufferProfile& buffer : chunk.buffers) {
        if (buffer.producer.call == moment.index) first(allocated[to_index(buffer.id)], now);
      }
    }
    const std::uint64_t step = std::max<std::uint64_t>(granularity.count(), 1);
    for (const BufferProfile& buffer : chunk.buffers) {
      if (!is_step_memory(buffer.fixed) || allocated[to_index(buffer.id)] < 0) continue;
      const std::uint64_t bytes = (buffer.size.count() + step - 1) / step * step;
      for (int i = allocated[to_index(buffer.id)] + 1; i <= dropped[to_index(buffer.id)]; ++i) {
        at_[to_index(i)] += static_cast<std::int64_t>(bytes);
      }
    }
  }

  [[nodiscard]] std::int64_t at(int moment) const { return at_[to_index(moment)]; }
  [[nodiscard]] int backward_begins() const { return backward_; }
  /// While other passes run between its forward and its backward.
  [[nodiscard]] std::int64_t between() const { return at_[to_index(backward_)]; }

 private:
  static void first(int& moment, int now) {
    if (moment < 0) moment = now;
  }

  std::vector<std::int64_t> at_;
  int backward_;
};

}  // namespace

std::vector<std::int64_t> untracked_bytes(const ChunkProfile& chunk,
                                          const std::vector<Moment>& pass, Bytes granularity) {
  std::map<std::pair<MomentKind, int>, std::int64_t> bytes;
  for (const Moment& moment : pass) bytes[{moment.kind, moment.index}] = moment.untracked_bytes;
  ChunkProfile same = chunk;
  std::vector<Moment> moments = chunk.timeline;
  std::vector<bool> found;
  for (Moment& moment : moments) {
    const auto own = bytes.find({moment.kind, moment.index});
    found.push_back(own != bytes.end());
    if (found.back()) moment.untracked_bytes = own->second;
  }
  add_timeline(std::move(moments), granularity, same);
  std::vector<std::int64_t> others;
  for (std::size_t i = 0; i < found.size(); ++i) {
    others.push_back((found[i] ? same : chunk).timeline[i].untracked_bytes);
  }
  return others;
}

std::int64_t unpredicted_bytes(const Profile& profile, const PassSchedule& schedule,
                               const std::vector<RecordedPass>& passes, Bytes budget) {
  std::map<int, const ChunkProfile*> chunks;
  std::map<int, KeptBytes> kept;
  for (const ChunkProfile& chunk : profile.chunks) {
    if (chunk.timeline.empty()) return 0;
    chunks[chunk.chunk] = &chunk;
    kept.emplace(chunk.chunk, KeptBytes(chunk, profile.granularity));
  }
  SimulateOptions options;
  options.schedule = schedule;
  options.trace = true;
  const Simulation simulation = simulate(profile, make_plan(profile, Rules{}), options);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  const auto limit = static_cast<std::int64_t>(std::min(budget.count(), kMost));
  std::int64_t most = 0;
  std::size_t point = 0;
  std::int64_t offload_window = 0;  // Of passes between their forward and their backward.
  for (const PassStep& step : schedule) {
    const ChunkProfile& chunk = *chunks.at(step.chunk);
    const KeptBytes& own = kept.at(step.chunk);
    const auto pass = std::find_if(passes.begin(), passes.end(), [&](const RecordedPass& each) {
      return each.chunk == step.chunk && each.micro_batch == step.micro_batch;
    });
    if (pass == passes.end()) return 0;
    const std::vector<std::int64_t> others =
        untracked_bytes(chunk, pass->moments, profile.granularity);
    if (step.backward) offload_window -= own.between();
    const int first = step.backward ? own.backward_begins() : 0;
    const int end = step.backward ? static_cast<int>(others.size()) : own.backward_begins();
    for (int moment = first; moment < end; ++moment, ++point) {
      const std::int64_t actual = others[to_index(moment)] + own.at(moment) + offload_window;
      const std::int64_t above = actual - simulation.memory.at(point).bytes;
      most = std::max(most, std::min(above, actual - limit));
    }
    if (!step.backward) offload_window += own.between();
  }
  return most;
}

}  // namespace spillway
