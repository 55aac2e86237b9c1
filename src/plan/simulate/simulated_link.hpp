/// Simulates the link between device and host: two lanes on which copies follow each other, slower
/// while both are busy, and groups of small copies as in the transfer engine.
///
/// Time is the caller's: that of the compute stream, which never goes back. So no copy that is
/// asked for later can begin before the end of one that compute waits for, and lanes need to be
/// advanced only for waits, or when copies slow compute down.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

class SimulatedLink {
 public:
  enum Direction { kOut, kBack };

  /// Some copies that run as one.
  struct Group {
    double ready_ns = 0;  ///< It begins when compute has come here at the earliest.
    int after = -1;       ///< It begins after the end of this group out.
    double bytes = 0;
    double begin_ns = -1;
    double end_ns = -1;
  };

  /// A direction without a speed takes no time.
  explicit SimulatedLink(const LinkSpeed& speed);

  /// Queues a copy; returns the number of its group. `after`: the copy's group out, if this one is
  /// back.
  int add(Direction direction, std::int64_t bytes, double now_ns, int after = -1);

  /// When a group ends. Queues it first, if it is still open.
  double end_of(Direction direction, int group);

  /// Removes a copy from a group that is still open. Returns whether it did.
  bool remove(Direction direction, int group, std::int64_t bytes);

  /// Queues the open groups.
  void hand_over();

  /// Finishes all copies.
  void finish();

  /// When work that takes `ns` alone and begins now is over, with the copies beside it that are
  /// handed over by now.
  double compute(double now_ns, double ns);

  /// The other way round: what takes `ns` with the copies beside it takes so long alone.
  double alone(double now_ns, double ns);

  [[nodiscard]] const std::vector<Group>& groups(Direction direction) const {
    return lanes_[direction].groups;
  }

 private:
  struct Lane {
    double alone = 0;  // Bytes a nanosecond; 0: at once.
    double shared = 0;
    double slows = 0;  // Compute, as LinkSpeed has it.
    std::vector<Group> groups;
    Group open;
    int members = 0;       // Of the open one.
    std::size_t head = 0;  // The first group that has not ended.
    double left = 0;       // Bytes of it.
  };

  void submit(Lane& lane);
  void advance(double limit_ns);
  double catch_up(double now_ns);
  [[nodiscard]] double slowing() const;
  [[nodiscard]] double start_of(const Lane& lane) const;

  Lane lanes_[2];
  double now_ns_ = 0;  // Lanes were looked at up to here.
};

}  // namespace spillway
