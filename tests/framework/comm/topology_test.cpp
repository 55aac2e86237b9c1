#include "spillway/comm/topology.hpp"

#include <set>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway::testing {
namespace {

using Lists = std::vector<std::vector<int>>;

TEST(Topology, LaysStagesFarthestApartByDefault) {
  const Topology topology(8, {.data = 2, .pipeline = 2, .tensor = 2});
  EXPECT_EQ(topology.partition(Axis::kTensor), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(topology.partition(Axis::kData), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(topology.partition(Axis::kPipeline), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(topology.partition(Axis::kExpert), (Lists{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
}

TEST(Topology, LaysPipelinesTogetherInPaddlesOrder) {
  const Topology topology(8, {.data = 2, .pipeline = 2, .tensor = 2}, kPaddleOrder);
  EXPECT_EQ(topology.partition(Axis::kTensor), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(topology.partition(Axis::kPipeline), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(topology.partition(Axis::kData), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Topology, JoinsAxes) {
  const Topology topology(8, {.data = 2, .pipeline = 2, .expert = 2});
  EXPECT_EQ(topology.partition({Axis::kData, Axis::kExpert}), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(topology.partition({Axis::kExpert, Axis::kData}), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(topology.partition({Axis::kPipeline, Axis::kExpert}),
            (Lists{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(topology.ranks_along(6, {Axis::kPipeline, Axis::kData}),
            (std::vector<int>{0, 2, 4, 6}));
}

TEST(Topology, GivesOneAxisWhatIsLeft) {
  EXPECT_EQ(Topology(12, {.data = 0, .pipeline = 3, .tensor = 2}).size(Axis::kData), 2);
  EXPECT_EQ(Topology(4, {.pipeline = 0}).size(Axis::kPipeline), 4);
}

TEST(Topology, CoordinatesAndPartitionsAgreeInEveryOrder) {
  AxisOrder order{Axis::kData, Axis::kPipeline, Axis::kTensor, Axis::kExpert};
  do {
    const Topology topology(60, {.data = 5, .pipeline = 3, .tensor = 2, .expert = 2}, order);
    for (int rank = 0; rank < 60; ++rank) {
      EXPECT_EQ(topology.rank(topology.coordinates(rank)), rank);
    }
    // Neighbours along the first axis have consecutive ranks.
    EXPECT_EQ(topology.ranks_along(0, order[0])[1], 1);
    for (const Axis axis : order) {
      std::multiset<int> seen;
      for (const auto& list : topology.partition(axis)) {
        ASSERT_EQ(list.size(), static_cast<std::size_t>(topology.size(axis)));
        for (std::size_t position = 0; position < list.size(); ++position) {
          EXPECT_EQ(topology.coordinate(list[position], axis), static_cast<int>(position));
          for (const Axis other : order) {
            if (other == axis) continue;
            EXPECT_EQ(topology.coordinate(list[position], other),
                      topology.coordinate(list[0], other));
          }
        }
        seen.insert(list.begin(), list.end());
      }
      EXPECT_EQ(seen.size(), 60U);
      EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), 60U);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Topology, DoesTheArithmeticForTheUser) {
  const auto text = [](int world, TopologySizes sizes) {
    return error_text<InvalidArgument>([&] { Topology(world, sizes); });
  };
  EXPECT_EQ(text(6, {.data = 2, .pipeline = 4}),
            "[topology] data 2 x pipeline 4 x tensor 1 x expert 1 = 8 ranks wanted, 6 are there; "
            "start 8 ranks, or set pipeline = 3");
  EXPECT_EQ(text(8, {.data = 2, .pipeline = 2}),
            "[topology] data 2 x pipeline 2 x tensor 1 x expert 1 = 4 ranks wanted, 8 are there; "
            "start 4 ranks, or set data = 4 or pipeline = 4 or tensor = 2 or expert = 2");
  EXPECT_EQ(text(1, {.pipeline = 4}),
            "[topology] data 1 x pipeline 4 x tensor 1 x expert 1 = 4 ranks wanted, 1 is there; "
            "start 4 ranks, or set pipeline = 1");
  EXPECT_EQ(text(7, {.data = 0, .pipeline = 2}),
            "[topology] the other axes take data 1 x pipeline 2 x tensor 1 x expert 1 = 2 ranks, "
            "which does not divide the 7 that are there; start a multiple of 2 ranks");
  EXPECT_EQ(text(4, {.data = 0, .pipeline = 0}),
            "[topology] data and pipeline are both 0; one of them must have a size");
  EXPECT_EQ(text(4, {.data = -2}),
            "[topology] data is -2; it must be 1 or more, or 0 for as many as are left");
}

TEST(Topology, RefusesWhatIsNotThere) {
  const Topology topology(4, {.pipeline = 4});
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)topology.coordinates(4); }),
            "[topology] there is no rank 4; ranks are 0 to 3");
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)topology.rank({.pipeline = 4}); }),
            "[topology] there is no position 4 along pipeline, which has 4");
  EXPECT_EQ(error_text<InvalidArgument>([] {
              Topology(4, {.data = 4}, {Axis::kData, Axis::kData, Axis::kTensor, Axis::kExpert});
            }),
            "[topology] the order of the axes has data 2 times; name each axis once");
}

}  // namespace
}  // namespace spillway::testing
