// The conformance suite over groups that torch.distributed made: a library that
// torch_groups_test.py loads into one Python process for each rank.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/group_conformance.hpp"
#include "spillway/comm/world.hpp"
#include "support/ranks.hpp"

namespace spillway::testing {
namespace {

World* the_world = nullptr;

INSTANTIATE_TEST_SUITE_P(Groups, GroupConformance,
                         ::testing::Values(GroupCase{
                             "gloo",
                             [](const std::string& name,
                                const std::vector<std::vector<int>>& partition) {
                               return ranks().group(name, partition);
                             }}),
                         group_case_name);

}  // namespace

World& ranks() { return *the_world; }

}  // namespace spillway::testing

/// Runs all cases. `new_group` makes a group of the given ranks and writes its name, with a zero
/// at its end, to `name`, which has room for `room` characters.
extern "C" int run_conformance(int rank, int size,
                               void (*new_group)(const int* ranks, int count, char* name,
                                                 int room)) {
  spillway::WorldOptions options;
  options.timeout = std::chrono::seconds(120);
  const auto world = spillway::make_torch_world(
      rank, size,
      [new_group](const std::vector<int>& ranks) -> std::string {
        std::array<char, 256> name{};
        new_group(ranks.data(), static_cast<int>(ranks.size()), name.data(), name.size());
        return name.data();
      },
      {}, options);
  spillway::testing::the_world = world.get();
  ::testing::InitGoogleTest();
  if (rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int result = RUN_ALL_TESTS();
  if (result != 0) world->abort("a test failed");
  return result;
}
