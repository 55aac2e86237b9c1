/// What every tier and every wrapper of tiers must do. Add tier_conformance.cpp to a test program
/// and instantiate with a TierCase for each.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "spillway/core/device.hpp"
#include "spillway/memory/tier.hpp"

namespace spillway::testing {

struct TierCase {
  std::string name;
  /// A tier of about `capacity`, with whatever it stands on kept alive by the pointer.
  std::function<std::shared_ptr<Tier>(Device& device, Bytes capacity)> make;

  friend std::ostream& operator<<(std::ostream& out, const TierCase& value) {
    return out << value.name;
  }
};

inline std::string tier_case_name(const ::testing::TestParamInfo<TierCase>& info) {
  return info.param.name;
}

class TierConformance : public ::testing::TestWithParam<TierCase> {};

}  // namespace spillway::testing
