/// Planning for a link that is slower than it was measured. Internal.
#pragma once

#include "spillway/plan/profile.hpp"

namespace spillway {

/// Of what was measured: what costs no time must cost none with a link that is slower by this.
inline constexpr double kSlowLink = 0.9;

/// The profile with all speeds of its link times `share`.
inline Profile with_slower_link(Profile profile, double share) {
  LinkSpeed& link = profile.link;
  for (double* speed : {&link.out, &link.back, &link.out_with_back, &link.back_with_out}) {
    *speed *= share;
  }
  return profile;
}

}  // namespace spillway
