/// What every kind of group must do. Add group_conformance.cpp to a test program of several ranks
/// (spillway_add_ranks_test) and instantiate with a GroupCase for each kind.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "spillway/groups/group.hpp"

namespace spillway::testing {

struct GroupCase {
  std::string name;
  /// As World::group().
  std::function<Group(const std::string& name, const std::vector<std::vector<int>>& partition)>
      make;

  friend std::ostream& operator<<(std::ostream& out, const GroupCase& value) {
    return out << value.name;
  }
};

inline std::string group_case_name(const ::testing::TestParamInfo<GroupCase>& info) {
  return info.param.name;
}

/// Every case runs on all ranks; a group of all of them is at hand.
class GroupConformance : public ::testing::TestWithParam<GroupCase> {
 protected:
  void SetUp() override;

  Group all_;
};

}  // namespace spillway::testing
