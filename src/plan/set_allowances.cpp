#include <algorithm>
#include <limits>
#include <utility>

#include "plan/simulator.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// By chunk, then site or place in the order of unpacks: the least that was found.
using Allowances = std::vector<std::vector<std::int64_t>>;

/// Bytes over a stretch of a step, and what becomes of them as one thing after another is released.
class Stretch {
 public:
  void add(int moment, std::int64_t bytes) {
    moments_.push_back(moment);
    bytes_.push_back(bytes);
    most_ = std::max(most_, bytes);
  }

  /// Takes `bytes` away after moment `from`, up to moment `to`.
  void take(std::int64_t bytes, int from, int to) {
    most_ = std::numeric_limits<std::int64_t>::min();
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (moments_[i] > from && moments_[i] <= to) bytes_[i] -= bytes;
      most_ = std::max(most_, bytes_[i]);
    }
  }

  [[nodiscard]] std::int64_t most() const noexcept { return most_; }

 private:
  std::vector<int> moments_;
  std::vector<std::int64_t> bytes_;
  std::int64_t most_ = std::numeric_limits<std::int64_t>::min();
};

/// How many of what may be released must be, oldest first, so that a stretch stays within the
/// budget; as few as possible. Where that cannot be, those with which it comes nearest.
struct Releases {
  std::int64_t ledger = 0;      ///< Afterwards,
  std::int64_t before = kMost;  ///< and before the last of them.
  std::int64_t most = 0;        ///< Bytes of the stretch then.
};

template <typename ForEach>
Releases releases_for(Stretch stretch, std::int64_t budget, std::int64_t ledger,
                      ForEach&& for_each) {
  Releases best{ledger, kMost, stretch.most()};
  if (best.most <= budget) return best;
  std::int64_t now = ledger;
  for_each([&](std::int64_t bytes, int from, int to) {
    stretch.take(bytes, from, to);
    const std::int64_t before = std::exchange(now, now - bytes);
    if (stretch.most() < best.most) best = {now, before, stretch.most()};
    return best.most > budget;
  });
  return best;
}

/// Releases as late as the next save allows.
class ForwardSetter final : public StepListener {
 public:
  ForwardSetter(std::int64_t budget, Allowances& forward) : budget_(budget), forward_(forward) {}

  std::optional<std::int64_t> saved(const StepWalk& walk, const StepPlace& place,
                                    int site) override {
    const Stretch stretch = until_next_save(walk, place);
    const Releases releases =
        releases_for(stretch, budget_, walk.ledger(), [&](const auto& release) {
          walk.for_each_in_window([&](ItemRef each) {
            const PlannedItem& item = walk.item(each);
            const int until = each.pass == place.pass ? item.model_until
                              : walk.model_has(each)  ? std::numeric_limits<int>::max()
                                                      : -1;
            return release(item.bytes, until, std::numeric_limits<int>::max());
          });
        });
    const std::int64_t room = releases.ledger + budget_ - releases.most;
    const std::int64_t allowance = std::max(releases.ledger, std::min(room, releases.before - 1));
    std::int64_t& least = forward_[at(place.chunk)][at(site)];
    least = std::min(least, allowance);
    return allowance;
  }

  std::optional<std::int64_t> unpacked(const StepWalk& /*walk*/, const StepPlace& /*place*/,
                                       int /*unpack*/, std::int64_t /*fetched*/) override {
    return 0;
  }

 private:
  /// What will be allocated up to the next save or unpack, if nothing is released.
  [[nodiscard]] static Stretch until_next_save(const StepWalk& walk, const StepPlace& place) {
    const PlannedChunk& chunk = walk.chunk_of(place);
    const bool on = walk.backward_follows(place.pass);
    const int last = on ? chunk.model->end : chunk.model->backward_begins - 1;
    std::int64_t bytes = walk.bytes_with(0);
    Stretch stretch;
    for (StepPlace ahead = place; ahead.moment < last;) {
      ++ahead.moment;
      ahead.backward = ahead.moment >= chunk.model->backward_begins;
      stretch.add(ahead.moment, bytes + walk.other_at(ahead));
      const MomentKind kind = chunk.moment(ahead.moment).kind;
      if (kind == MomentKind::kSave || kind == MomentKind::kUnpack) break;
      for (const ItemEvent& event : chunk.events_at(ahead.moment)) {
        bytes += change(walk, {place.pass, event.item}, event);
      }
    }
    return stretch;
  }

  /// What an event that is still to come does to the bytes on the device.
  [[nodiscard]] static std::int64_t change(const StepWalk& walk, ItemRef what,
                                           const ItemEvent& event) {
    const PlannedItem& item = walk.item(what);
    const bool held = walk.in_ledger(what) && (item.given_up < 0 || item.given_up > event.moment);
    const bool anchored = item.anchor && (held || item.entered <= event.moment);
    switch (event.kind) {
      case ItemEventKind::kBorn:
        return item.bytes;
      case ItemEventKind::kModelLetsGo:
        if (item.anchor) return anchored ? item.bytes : 0;
        return item.managed && !held ? -item.bytes : 0;
      case ItemEventKind::kAnchored:
        return event.moment < item.model_until ? 0 : item.bytes;
      case ItemEventKind::kGivenUp:
        return event.moment < item.model_until ? 0 : -item.bytes;
      case ItemEventKind::kGone:
        return held || !item.managed ? -item.bytes : 0;
    }
    return 0;
  }

  std::int64_t budget_;
  Allowances& forward_;
};

/// What is not released by the last save of a pass whose backward follows stays until it is used.
/// So the last save releases what has no room then.
class LastSaveSetter final : public StepListener {
 public:
  LastSaveSetter(std::int64_t budget, Allowances& forward) : budget_(budget), forward_(forward) {}

  std::optional<std::int64_t> saved(const StepWalk& walk, const StepPlace& place,
                                    int site) override {
    finish();
    const PlannedChunk& chunk = walk.chunk_of(place);
    const bool last = at(site) + 1 == chunk.model->save_moment.size();
    const std::int64_t most = forward_[at(place.chunk)][at(site)];
    if (!last || !walk.backward_follows(place.pass)) return most;
    open_ = true;
    place_ = place;
    site_ = site;
    ledger_ = walk.ledger();
    stretch_ = {};
    staying_.clear();
    walk.for_each_in_window([&](ItemRef each) {
      if (ledger_ > most) {
        ledger_ -= walk.item(each).bytes;
      } else {
        staying_.push_back(staying(walk, each));
      }
      return true;
    });
    return most;
  }

  void computes(const StepPlace& place, std::int64_t /*ns*/, std::int64_t bytes) override {
    if (open_ && place.pass == place_.pass) stretch_.add(2 * place.moment, bytes);
  }

  void repeats(const StepPlace& place, const ReplayJob& /*job*/, std::int64_t bytes) override {
    if (open_ && place.pass == place_.pass) stretch_.add(2 * place.moment + 1, bytes);
  }

  std::optional<std::int64_t> unpacked(const StepWalk& /*walk*/, const StepPlace& /*place*/,
                                       int /*unpack*/, std::int64_t /*fetched*/) override {
    return 0;
  }

  void finish() {
    if (!std::exchange(open_, false)) return;
    const Releases releases = releases_for(stretch_, budget_, ledger_, [&](const auto& release) {
      for (const Staying& each : staying_) {
        if (!release(each.bytes, each.from, each.to)) return;
      }
    });
    std::int64_t& least = forward_[at(place_.chunk)][at(site_)];
    if (releases.ledger < ledger_) least = std::min(least, releases.before - 1);
  }

 private:
  /// What could still be released, and the part of the stretch that would win by it.
  struct Staying {
    std::int64_t bytes = 0;
    int from = 0;
    int to = 0;
  };

  [[nodiscard]] Staying staying(const StepWalk& walk, ItemRef what) const {
    const PlannedItem& item = walk.item(what);
    constexpr int kAlways = std::numeric_limits<int>::max();
    if (what.pass != place_.pass) return {item.bytes, walk.model_has(what) ? kAlways : -1, kAlways};
    return {item.bytes, 2 * item.model_until, 2 * (item.needed < 0 ? item.gone : item.needed)};
  }

  std::int64_t budget_;
  Allowances& forward_;
  bool open_ = false;
  StepPlace place_;
  int site_ = 0;
  std::int64_t ledger_ = 0;  // Once the save has released what it does so far.
  Stretch stretch_;          // Pieces at even moments, replays behind them.
  std::vector<Staying> staying_;
};

/// Reloads as early as everything up to their use allows.
class BackwardSetter final : public StepListener {
 public:
  BackwardSetter(std::int64_t budget, const Allowances& forward)
      : budget_(budget), forward_(forward) {}

  void computes(const StepPlace& /*place*/, std::int64_t /*ns*/, std::int64_t bytes) override {
    if (!points_.empty()) points_.back().slack = std::min(points_.back().slack, budget_ - bytes);
  }

  void repeats(const StepPlace& /*place*/, const ReplayJob& /*job*/, std::int64_t bytes) override {
    replay_slack_ = std::min(replay_slack_, budget_ - bytes);
  }

  std::optional<std::int64_t> saved(const StepWalk& /*walk*/, const StepPlace& place,
                                    int site) override {
    points_.push_back({});
    return forward_[at(place.chunk)][at(site)];
  }

  std::optional<std::int64_t> unpacked(const StepWalk& walk, const StepPlace& place, int unpack,
                                       std::int64_t fetched) override {
    Point point;
    point.chunk = place.chunk;
    point.unpack = unpack;
    point.ledger = walk.ledger();
    point.before = std::exchange(replay_slack_, kMost);
    // Nobody could have reloaded for a backward that had not begun.
    const bool first = std::exchange(last_pass_, place.pass) != place.pass;
    point.fetched = first ? 0 : fetched;
    points_.push_back(point);
    return 0;
  }

  void fill_in(Allowances& backward) const {
    std::int64_t ahead = kMost;  // The most that may be there early, at the next point.
    std::int64_t next_fetched = 0;
    for (auto point = points_.rbegin(); point != points_.rend(); ++point) {
      if (ahead < kMost) ahead += next_fetched;
      ahead = std::max<std::int64_t>(0, std::min(ahead, point->slack));
      if (point->unpack >= 0) {
        std::int64_t& least = backward[at(point->chunk)][at(point->unpack)];
        const std::int64_t allowance = ahead > 0 ? point->ledger + ahead : 0;
        least = std::min(least, allowance);
      }
      ahead = std::max<std::int64_t>(0, std::min(ahead, point->before));
      next_fetched = point->fetched;
    }
  }

 private:
  struct Point {
    int chunk = 0;
    int unpack = -1;  // -1: a save.
    std::int64_t ledger = 0;
    std::int64_t fetched = 0;
    std::int64_t slack = kMost;   // Up to the next point,
    std::int64_t before = kMost;  // and while what led to this one was repeated.
  };

  std::int64_t budget_;
  const Allowances& forward_;
  std::vector<Point> points_;
  std::int64_t replay_slack_ = kMost;
  int last_pass_ = -1;
};

std::vector<Bytes> to_bytes(const std::vector<std::int64_t>& numbers) {
  std::vector<Bytes> bytes;
  bytes.reserve(numbers.size());
  for (const std::int64_t each : numbers) {
    bytes.emplace_back(static_cast<std::uint64_t>(std::max<std::int64_t>(each, 0)));
  }
  return bytes;
}

}  // namespace

void Simulator::set_allowances(Bytes budget, Plan& plan) const {
  const std::vector<PlannedChunk> chunks = planned_chunks(plan);
  const auto most =
      static_cast<std::int64_t>(std::min<std::uint64_t>(budget.count(), std::uint64_t{1} << 62U));
  StepLimits limits;
  limits.windows = false;
  limits.host = plan.limits.host ? static_cast<std::int64_t>(std::min<std::uint64_t>(
                                       plan.limits.host->count(), std::uint64_t{1} << 62U))
                                 : kMost / 2;
  Allowances forward;
  Allowances backward;
  for (const PassModel& model : models_) {
    forward.emplace_back(model.save_moment.size(), kMost);
    backward.emplace_back(model.unpack_moment.size(), kMost);
  }
  const auto walk = [&](StepListener& listener) {
    StepWalk(chunks, schedule_, limits, listener, {}).run();
  };
  ForwardSetter forward_setter(most, forward);
  walk(forward_setter);
  LastSaveSetter last_save_setter(most, forward);
  walk(last_save_setter);
  last_save_setter.finish();
  BackwardSetter backward_setter(most, forward);
  walk(backward_setter);
  backward_setter.fill_in(backward);
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    plan.chunks[i].forward_allowance = to_bytes(forward[i]);
    plan.chunks[i].backward_allowance = to_bytes(backward[i]);
  }
}

}  // namespace spillway
