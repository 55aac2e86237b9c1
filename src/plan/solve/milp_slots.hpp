/// Divides a step into slots: runs of moments that the MILP model treats as one.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/solve/planner_space.hpp"
#include "spillway/plan/schedule.hpp"

namespace spillway {

/// Pieces `first` .. `last` of a pass, as PassModel counts them: what lies between the moment
/// before `first` and the moment `last`.
struct Slot {
  int step = 0;   ///< In the schedule.
  int chunk = 0;  ///< By index in the profile.
  int first = 0;
  int last = 0;
  std::int64_t ns = 0;
  /// The pieces at which memory is checked, in order.
  struct Row {
    int piece = 0;
    std::int64_t kept = 0;  ///< Bytes on the device if everything is kept.
  };
  std::vector<Row> rows = {};
};

/// By step of the schedule, then piece: bytes on the device if everything is kept.
using KeptBytes = std::vector<std::vector<std::int64_t>>;

class Slots {
 public:
  /// About `wanted` slots at most, and at least a few in each pass. Borders lie at the last forward
  /// use of large buffers and where they are first needed in backward.
  Slots(const std::vector<ChunkSpace>& spaces, const PassSchedule& schedule, const KeptBytes& kept,
        int wanted);

  [[nodiscard]] int count() const { return static_cast<int>(slots_.size()); }
  [[nodiscard]] const Slot& operator[](int slot) const {
    return slots_[static_cast<std::size_t>(slot)];
  }
  /// Where what happens at a moment of a step takes effect: the slot that has the piece after it,
  /// be it of a later step; count() if there is none.
  [[nodiscard]] int after(int step, int moment) const;
  /// The slot that has the piece before a moment.
  [[nodiscard]] int before(int step, int moment) const;

 private:
  std::vector<Slot> slots_;
  std::vector<int> first_of_step_;  // By step, and one more.
};

}  // namespace spillway
