/// The link between device and host on paper: two lanes on which copies follow each other, slower
/// while both are busy, and small copies that wait for company as the transfer engine makes them.
///
/// Time is the caller's: that of the compute stream, which never goes back. So no copy that is
/// asked for later can begin before the end of one that compute waits for, and lanes need to be
/// looked at only when somebody waits, or when copies slow compute down.
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
    double ready_ns = 0;  ///< Not before compute came here,
    int after = -1;       ///< and not before this group out has ended.
    double bytes = 0;
    double begin_ns = -1;
    double end_ns = -1;
  };

  /// A way without a speed takes no time.
  explicit SimulatedLink(const LinkSpeed& speed);

  /// Asks for a copy; gives the number of its group. `after`: the copy's group out, if this one is
  /// back.
  int add(Direction direction, std::int64_t bytes, double now_ns, int after = -1);

  /// When a group ends. Hands it over first, if it still waits for company.
  double end_of(Direction direction, int group);

  /// Takes a copy out of a group that still waits for company. Whether it did.
  bool remove(Direction direction, int group, std::int64_t bytes);

  /// Hands over what waits for company.
  void hand_over();

  /// Lets everything end.
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
