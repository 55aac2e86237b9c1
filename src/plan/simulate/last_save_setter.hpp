/// Finds the targets of the last saves before backward. Internal; see Simulator::set_residency().
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/simulate/byte_targets.hpp"
#include "plan/simulate/release_interval.hpp"
#include "plan/simulate/step_walk.hpp"

namespace spillway {

/// What is not released by the last save before a backward cannot be released until the next save,
/// and not at all once its own backward has begun. So the last save of a forward releases what does
/// not fit until then.
class LastSaveSetter final : public StepListener {
 public:
  /// `reserve`: bytes to leave for reloads where an older pass's backward follows.
  LastSaveSetter(std::int64_t budget, std::int64_t reserve, ChunkTargets& forward)
      : budget_(budget), reserve_(reserve), forward_(forward) {}

  ByteLimit saved(const StepWalk& walk, const StepPosition& position, int site) override {
    finish();
    const PlannedChunk& chunk = walk.chunk_of(position);
    const bool last = static_cast<std::size_t>(site) + 1 == chunk.model->save_moment.size();
    std::int64_t& most = forward_[to_index(position.chunk)][to_index(site)];
    if (!last) return {most};
    walk_ = &walk;
    least_ = &most;
    target_ = walk.backward_follows(position.pass) ? budget_ : budget_ - reserve_;
    managed_bytes_ = walk.managed_bytes();
    interval_ = {};
    staying_.clear();
    walk.for_each_in_window([&](ItemRef each) {
      if (managed_bytes_ > most) {
        managed_bytes_ -= walk.item(each).bytes;
      } else {
        staying_.push_back(staying(walk, each));
      }
      return true;
    });
    return {most};
  }

  void computes(const StepPosition& position, std::int64_t /*ns*/, std::int64_t bytes) override {
    if (walk_ != nullptr) interval_.add(2 * walk_->position(position.pass, position.moment), bytes);
  }

  void repeats(const StepPosition& position, const ReplayJob& /*job*/,
               std::int64_t bytes) override {
    if (walk_ != nullptr)
      interval_.add(2 * walk_->position(position.pass, position.moment) + 1, bytes);
  }

  ByteLimit unpacked(const StepWalk& /*walk*/, const StepPosition& /*position*/, int /*unpack*/,
                     std::int64_t /*fetched*/) override {
    return {0};
  }

  void finish() {
    if (std::exchange(walk_, nullptr) == nullptr) return;
    const Releases releases =
        releases_for(interval_, target_, managed_bytes_, [&](const auto& release) {
          for (const Staying& each : staying_) {
            if (!release(each.bytes, each.from, each.to)) return;
          }
        });
    if (releases.managed_bytes == managed_bytes_ || *least_ < releases.before) return;
    *least_ = releases.before - 1;
    changed_ = true;
  }

  /// Whether anything new was found.
  [[nodiscard]] bool changed() const noexcept { return changed_; }

 private:
  /// What could still be released, and the part of the interval that would gain from it.
  struct Staying {
    std::int64_t bytes = 0;
    int from = 0;
    int to = 0;
  };

  [[nodiscard]] static Staying staying(const StepWalk& walk, ItemRef what) {
    const PlannedItem& item = walk.item(what);
    const int until = item.needed < 0 ? item.freed : item.needed;
    return {item.bytes, 2 * walk.position(what.pass, item.model_until),
            2 * walk.position(what.pass, until)};
  }

  std::int64_t budget_;
  std::int64_t reserve_;
  ChunkTargets& forward_;
  const StepWalk* walk_ = nullptr;  // During an interval.
  std::int64_t* least_ = nullptr;
  bool changed_ = false;
  std::int64_t target_ = 0;
  std::int64_t managed_bytes_ = 0;  // Once the save has released what it does so far.
  StepInterval interval_;           // Pieces at even moments, replays behind them.
  std::vector<Staying> staying_;
};

}  // namespace spillway
