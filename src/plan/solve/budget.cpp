#include "spillway/plan/budget.hpp"

#include <algorithm>
#include <string>

#include "spillway/core/error.hpp"

namespace spillway {

Budget Budget::share(double share) {
  if (!(share > 0 && share < 1)) {
    throw InvalidArgument("budget", "a share of more than 0 and less than 1 wanted, found " +
                                        std::to_string(share) +
                                        "; give bytes, or no budget to keep everything");
  }
  Budget budget;
  budget.share_ = share;
  return budget;
}

Budget Budget::automatic(Bytes margin) {
  Budget budget;
  budget.margin_ = margin;
  return budget;
}

Bytes Budget::resolve(Bytes kept_peak, Bytes room) const {
  if (share_) {
    return Bytes(static_cast<std::uint64_t>(static_cast<double>(kept_peak.count()) * *share_));
  }
  if (margin_) return room - std::min(room, *margin_);
  return bytes_;
}

}  // namespace spillway
