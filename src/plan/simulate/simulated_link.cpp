#include "plan/simulate/simulated_link.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace spillway {
namespace {

// As EngineOptions::group and CopyLane have them.
constexpr std::int64_t kGroupBytes = 8 << 20;
constexpr int kMostCopies = 16;

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

SimulatedLink::SimulatedLink(const LinkSpeed& speed) {
  const auto set = [](Lane& lane, double alone, double shared, double slows) {
    lane.alone = alone * 1e-9;
    lane.shared = (shared > 0 ? shared : alone) * 1e-9;
    lane.slows = slows;
  };
  set(lanes_[kOut], speed.out, speed.out_with_back, speed.slows_out.value_or(0));
  set(lanes_[kBack], speed.back, speed.back_with_out, speed.slows_back.value_or(0));
}

int SimulatedLink::add(Direction direction, std::int64_t bytes, double now_ns, int after) {
  Lane& lane = lanes_[direction];
  const bool small = bytes * 2 <= kGroupBytes;
  if (!small) submit(lane);
  const int group = static_cast<int>(lane.groups.size());
  lane.open.ready_ns = now_ns;
  lane.open.after = std::max(lane.open.after, after);
  lane.open.bytes += static_cast<double>(bytes);
  ++lane.members;
  if (!small || lane.open.bytes >= static_cast<double>(kGroupBytes) ||
      lane.members == kMostCopies) {
    submit(lane);
  }
  return group;
}

bool SimulatedLink::remove(Direction direction, int group, std::int64_t bytes) {
  Lane& lane = lanes_[direction];
  if (static_cast<std::size_t>(group) < lane.groups.size()) return false;
  lane.open.bytes -= static_cast<double>(bytes);
  if (--lane.members == 0) lane.open = {};
  return true;
}

void SimulatedLink::submit(Lane& lane) {
  if (lane.members == 0) return;
  if (lane.head == lane.groups.size()) lane.left = lane.open.bytes;
  lane.groups.push_back(std::exchange(lane.open, {}));
  lane.members = 0;
}

void SimulatedLink::hand_over() {
  for (Lane& lane : lanes_) submit(lane);
}

double SimulatedLink::end_of(Direction direction, int group) {
  Lane& lane = lanes_[direction];
  if (static_cast<std::size_t>(group) == lane.groups.size()) submit(lane);
  while (lane.head <= static_cast<std::size_t>(group)) advance(kNever);
  return lane.groups[static_cast<std::size_t>(group)].end_ns;
}

void SimulatedLink::finish() {
  hand_over();
  for (const Lane& lane : lanes_) {
    while (lane.head < lane.groups.size()) advance(kNever);
  }
}

double SimulatedLink::compute(double now_ns, double ns) {
  if (lanes_[kOut].slows <= 0 && lanes_[kBack].slows <= 0) return now_ns + ns;
  double left = ns - catch_up(now_ns);
  if (left <= 0) return now_ns + ns;
  while (left > 0) {
    const double slower = slowing();
    const double begin = now_ns_;
    const double end = begin + left * slower;
    advance(end);
    left = now_ns_ < end ? left - (now_ns_ - begin) / slower : 0;
  }
  return now_ns_;
}

double SimulatedLink::alone(double now_ns, double ns) {
  if (lanes_[kOut].slows <= 0 && lanes_[kBack].slows <= 0) return ns;
  double work = std::min(ns, catch_up(now_ns));
  while (now_ns_ < now_ns + ns) {
    const double slower = slowing();
    const double begin = now_ns_;
    advance(now_ns + ns);
    work += (now_ns_ - begin) / slower;
  }
  return work;
}

/// Advances to the time of compute. Returns how far it was beyond that: the end of a copy may have
/// been requested without waiting for it.
double SimulatedLink::catch_up(double now_ns) {
  while (now_ns_ < now_ns) advance(now_ns);
  return now_ns_ - now_ns;
}

/// How many times as long compute takes now.
double SimulatedLink::slowing() const {
  double times = 1;
  for (const Lane& lane : lanes_) {
    if (start_of(lane) <= now_ns_) times += lane.slows;
  }
  return times;
}

/// When the next group of a lane can begin, or could have; never, if that is not known yet.
double SimulatedLink::start_of(const Lane& lane) const {
  if (lane.head == lane.groups.size()) return kNever;
  const Group& group = lane.groups[lane.head];
  if (group.begin_ns >= 0) return group.begin_ns;
  if (group.after < 0) return group.ready_ns;
  const auto after = static_cast<std::size_t>(group.after);
  if (after >= lanes_[kOut].head) return kNever;
  return std::max(group.ready_ns, lanes_[kOut].groups[after].end_ns);
}

/// Advances to the next time at which a lane begins or ends something, or to the limit.
void SimulatedLink::advance(double limit_ns) {
  double starts[2];
  for (int i : {0, 1}) starts[i] = start_of(lanes_[i]);
  bool busy[2];
  for (int i : {0, 1}) busy[i] = starts[i] <= now_ns_;
  if (!busy[0] && !busy[1]) {
    now_ns_ = std::min({limit_ns, starts[0], starts[1]});
    return;
  }
  double next = limit_ns;
  for (int i : {0, 1}) {
    Lane& lane = lanes_[i];
    if (!busy[i]) {
      next = std::min(next, starts[i]);
      continue;
    }
    if (lane.groups[lane.head].begin_ns < 0) lane.groups[lane.head].begin_ns = now_ns_;
    const double speed = busy[0] && busy[1] ? lane.shared : lane.alone;
    next = std::min(next, now_ns_ + (speed > 0 ? lane.left / speed : 0));
  }
  for (int i : {0, 1}) {
    if (!busy[i]) continue;
    Lane& lane = lanes_[i];
    const double speed = busy[0] && busy[1] ? lane.shared : lane.alone;
    const double end = now_ns_ + (speed > 0 ? lane.left / speed : 0);
    if (end > next) {
      lane.left -= (next - now_ns_) * speed;
      continue;
    }
    lane.groups[lane.head].end_ns = next;
    ++lane.head;
    if (lane.head < lane.groups.size()) lane.left = lane.groups[lane.head].bytes;
  }
  now_ns_ = next;
}

}  // namespace spillway
