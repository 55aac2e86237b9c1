/// Planning for a link that is slower than it was measured. Internal.
#pragma once

#include "spillway/plan/profile.hpp"

namespace spillway {

/// The profile with all speeds of its link times `share`.
inline Profile with_slower_link(Profile profile, double share) {
  LinkSpeed& link = profile.link;
  for (double* speed : {&link.out, &link.back, &link.out_with_back, &link.back_with_out}) {
    *speed *= share;
  }
  return profile;
}

}  // namespace spillway
