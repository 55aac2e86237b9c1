/// Finds the targets of unpacks. Internal; see Simulator::set_residency().
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/simulate/byte_targets.hpp"
#include "plan/simulate/step_walk.hpp"

namespace spillway {

/// Reloads as early as everything up to their use allows.
/// `carried`: percent of the free memory that reloads may use while a later pass saves. They make
/// that pass release sooner, which it may have to wait for.
class BackwardSetter final : public StepListener {
 public:
  BackwardSetter(std::int64_t budget, int carried, const ChunkTargets& forward)
      : budget_(budget), carried_(carried), forward_(forward) {}

  void computes(const StepPosition& /*position*/, std::int64_t /*ns*/,
                std::int64_t bytes) override {
    if (!points_.empty()) points_.back().slack = std::min(points_.back().slack, budget_ - bytes);
  }

  void repeats(const StepPosition& /*position*/, const ReplayJob& /*job*/,
               std::int64_t bytes) override {
    replay_slack_ = std::min(replay_slack_, budget_ - bytes);
  }

  ByteLimit saved(const StepWalk& /*walk*/, const StepPosition& position, int site) override {
    points_.push_back({});
    return {forward_[to_index(position.chunk)][to_index(site)]};
  }

  ByteLimit unpacked(const StepWalk& walk, const StepPosition& position, int unpack,
                     std::int64_t fetched) override {
    Point point;
    point.chunk = position.chunk;
    point.unpack = unpack;
    point.managed_bytes = walk.managed_bytes();
    point.before = std::exchange(replay_slack_, EngineLimits::kNone);
    // Nothing can be prefetched for a backward that has not begun.
    const bool first = std::exchange(last_pass_, position.pass) != position.pass;
    point.fetched = first ? 0 : fetched;
    points_.push_back(point);
    return {0};
  }

  void fill_in(ChunkTargets& backward) const {
    std::int64_t prefetched =
        EngineLimits::kNone;  // The most that may be there early, at the next point.
    std::int64_t next_fetched = 0;
    for (std::size_t i = points_.size(); i-- > 0;) {
      const Point& point = points_[i];
      if (prefetched < EngineLimits::kNone) prefetched += next_fetched;
      const bool save = point.unpack < 0;
      const std::int64_t room = save ? point.slack / 100 * carried_ : point.slack;
      prefetched = std::max<std::int64_t>(0, std::min(prefetched, room));
      if (point.unpack >= 0) {
        std::int64_t& least = backward[to_index(point.chunk)][to_index(point.unpack)];
        least = std::min(least, point.managed_bytes + prefetched);
      }
      prefetched = std::max<std::int64_t>(0, std::min(prefetched, point.before));
      next_fetched = point.fetched;
    }
  }

 private:
  struct Point {
    int chunk = 0;
    int unpack = -1;  // -1: a save.
    std::int64_t managed_bytes = 0;
    std::int64_t fetched = 0;
    std::int64_t slack = EngineLimits::kNone;   // Up to the next point.
    std::int64_t before = EngineLimits::kNone;  // During the replay that led to this point.
  };

  std::int64_t budget_;
  int carried_;
  const ChunkTargets& forward_;
  std::vector<Point> points_;
  std::int64_t replay_slack_ = EngineLimits::kNone;
  int last_pass_ = -1;
};

}  // namespace spillway
