#include "torch/execute/schedule_follower.hpp"

#include <algorithm>
#include <utility>

namespace spillway {

void ScheduleFollower::begin(PassSchedule schedule) {
  schedule_ = std::move(schedule);
  next_ = 0;
  on_schedule_ = !schedule_.empty();
}

bool ScheduleFollower::advance(const PassStep& step) {
  if (!on_schedule_) return true;
  for (std::size_t i = next_; i < schedule_.size(); ++i) {
    if (schedule_[i] == step) {
      next_ = i + 1;
      return true;
    }
    if (!schedule_[i].backward) break;
  }
  on_schedule_ = false;
  return false;
}

bool ScheduleFollower::complete() {
  if (!on_schedule_) return true;
  return std::all_of(schedule_.begin() + static_cast<std::ptrdiff_t>(next_), schedule_.end(),
                     [](const PassStep& step) { return step.backward; });
}

std::optional<PassStep> ScheduleFollower::next_backward() const {
  if (!on_schedule_) return std::nullopt;
  const auto found =
      std::find_if(schedule_.begin() + static_cast<std::ptrdiff_t>(next_), schedule_.end(),
                   [](const PassStep& step) { return step.backward; });
  if (found == schedule_.end()) return std::nullopt;
  return *found;
}

bool ScheduleFollower::backward_is_near() const {
  if (!on_schedule_ || next_ == 0 || schedule_[next_ - 1].backward) return false;
  const PassStep wanted{schedule_[next_ - 1].chunk, schedule_[next_ - 1].micro_batch, true};
  for (std::size_t i = next_; i < schedule_.size() && schedule_[i].backward; ++i) {
    if (schedule_[i] == wanted) return true;
  }
  return false;
}

}  // namespace spillway
