#include "plan/solve/planner_closed_bound.hpp"

#include <algorithm>
#include <map>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// Bytes that can be freed, and the time it takes.
struct Offer {
  double bytes = 0;
  double ns = 0;
};

/// How many passes of a chunk have begun and not ended before a step of the schedule is over, and
/// how much time has passed until a moment of it.
class Until {
 public:
  Until(const Evaluator& evaluator, const PeakLocation& peak) {
    for (const PassStep& step : evaluator.schedule()) {
      const ChunkSpace& space = space_of_chunk(evaluator, step.chunk);
      if (!step.backward) ++passes_in_flight_[step.chunk];
      const bool last = step == peak.pass;
      const int begins = space.model.backward_begins;
      const int first = step.backward ? begins : 0;
      const int end = step.backward ? space.model.end + 1 : begins;
      for (int piece = first; piece < end && !(last && piece > peak.moment); ++piece) {
        ns_ += static_cast<double>(space.chunk->timeline[to_index(piece)].compute_ns);
      }
      if (last) return;
      if (step.backward) --passes_in_flight_[step.chunk];
    }
  }

  [[nodiscard]] double ns() const { return ns_; }
  [[nodiscard]] int passes_in_flight(int chunk) const {
    const auto found = passes_in_flight_.find(chunk);
    return found == passes_in_flight_.end() ? 0 : found->second;
  }

 private:
  [[nodiscard]] static const ChunkSpace& space_of_chunk(const Evaluator& evaluator, int chunk) {
    return *std::find_if(evaluator.spaces().begin(), evaluator.spaces().end(),
                         [chunk](const ChunkSpace& each) { return each.chunk->chunk == chunk; });
  }

  std::map<int, int> passes_in_flight_;
  double ns_ = 0;
};

/// The bytes freed by recomputation, all buffers of a call together.
std::vector<Offer> offers_of(const ChunkSpace& space, int passes) {
  std::map<int, Offer> by_call;
  for (std::size_t id = 0; id < space.buffers.size(); ++id) {
    const BufferLife& life = space.model.buffers[id];
    if (!space.buffers[id].recompute || !life.counted) continue;
    const int value = space.chunk->buffers[id].value;
    const int call = space.chunk->values[to_index(value)].call;
    const bool free = life.first_need < 0 || life.last_forward_use >= life.first_need;
    Offer& offer = by_call[free ? -1 : call];
    offer.bytes += static_cast<double>(life.bytes) * passes;
    offer.ns = free ? 0 : static_cast<double>(space.replay_ns[to_index(call)]) * passes;
  }
  std::vector<Offer> offers;
  for (const auto& [call, offer] : by_call) offers.push_back(offer);
  return offers;
}

}  // namespace

std::int64_t closed_bound_ns(const Evaluator& evaluator, const Simulation& base,
                             const LinkSpeed& link, std::int64_t budget) {
  const auto peak = static_cast<std::int64_t>(base.peak.count());
  if (peak <= budget) return base.step_ns;
  const Until until(evaluator, base.peak_location);
  const double per_ns = link.out * 1e-9;
  std::vector<Offer> offers;
  for (const ChunkSpace& space : evaluator.spaces()) {
    const int passes = until.passes_in_flight(space.chunk->chunk);
    const std::vector<Offer> added = offers_of(space, passes);
    offers.insert(offers.end(), added.begin(), added.end());
  }
  // During recomputation the link continues to copy.
  for (Offer& offer : offers) offer.bytes += offer.ns * per_ns;
  std::sort(offers.begin(), offers.end(),
            [](const Offer& a, const Offer& b) { return a.ns * b.bytes < b.ns * a.bytes; });
  double missing = static_cast<double>(peak - budget) - until.ns() * per_ns;
  double ns = 0;
  for (const Offer& offer : offers) {
    if (missing <= 0 || offer.bytes <= 0) break;
    if (offer.ns * per_ns >= offer.bytes) break;
    const double share = std::min(1.0, missing / offer.bytes);
    ns += share * offer.ns;
    missing -= share * offer.bytes;
  }
  if (missing > 0 && per_ns > 0) ns += missing / per_ns;
  return base.step_ns + static_cast<std::int64_t>(ns);
}

}  // namespace spillway
