#include "spillway/schedule/segment.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using ::spillway::testing::error_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename F>
std::string problem_of(F&& call) {
  return error_text<InvalidArgument>(call);
}

TEST(Segmentation, GivesTheLastPartsOneMore) {
  EXPECT_THAT(segment_uniform(8, 4), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(segment_uniform(10, 4), ElementsAre(0, 2, 4, 7, 10));
  EXPECT_THAT(segment_uniform(7, 4), ElementsAre(0, 1, 3, 5, 7));
  EXPECT_THAT(segment_uniform(5, 1), ElementsAre(0, 5));
  EXPECT_THAT(segment_uniform(3, 3), ElementsAre(0, 1, 2, 3));
}

TEST(Segmentation, IsValidForEveryNumberOfLayers) {
  for (int parts = 1; parts <= 9; ++parts) {
    for (int layers = parts; layers <= 40; ++layers) {
      const std::vector<int> bounds = segment_uniform(layers, parts);
      EXPECT_NO_THROW(check_bounds(bounds, layers, parts));
      std::vector<int> sizes;
      std::adjacent_difference(bounds.begin(), bounds.end(), std::back_inserter(sizes));
      EXPECT_TRUE(std::is_sorted(sizes.begin() + 1, sizes.end()));
      EXPECT_LE(sizes.back() - sizes[1], 1);
    }
  }
}

TEST(Segmentation, CountsLayersOfAName) {
  const std::vector<std::string> names{"Embed", "Block", "Norm",  "Block", "Block",
                                       "Drop",  "Block", "Final", "Head"};
  EXPECT_THAT(segment_by_name(names, "Block", 2), ElementsAre(0, 4, 9));
  EXPECT_THAT(segment_by_name(names, "Block", 4), ElementsAre(0, 2, 4, 5, 9));
  EXPECT_THAT(segment_by_name(names, "Block", 1), ElementsAre(0, 9));
  EXPECT_THAT(problem_of([&] { (void)segment_by_name(names, "Block", 3); }),
              HasSubstr("must be a multiple of the 3 parts, found 4 of them: 1 each leave 1 over"));
  EXPECT_THAT(problem_of([&] { (void)segment_by_name(names, "Blok", 2); }),
              HasSubstr("no layer is called \"Blok\"; did you mean \"Block\"?"));
}

TEST(Segmentation, MakesTheHeaviestPartAsLightAsPossible) {
  EXPECT_THAT(segment_by_weight({9, 1, 1, 1, 9, 1}, 3), ElementsAre(0, 1, 4, 6));
  EXPECT_THAT(segment_by_weight({1, 1, 1, 9}, 2), ElementsAre(0, 3, 4));
}

/// All splits, the earliest bounds first.
std::vector<int> best_by_trying(const std::vector<std::int64_t>& weights, int parts) {
  const int layers = static_cast<int>(weights.size());
  std::vector<int> best;
  std::int64_t best_weight = std::numeric_limits<std::int64_t>::max();
  std::vector<int> bounds{0};
  const auto go = [&](const auto& self) -> void {
    if (static_cast<int>(bounds.size()) == parts) {
      bounds.push_back(layers);
      std::int64_t heaviest = 0;
      for (std::size_t i = 1; i < bounds.size(); ++i) {
        heaviest =
            std::max(heaviest, std::accumulate(weights.begin() + bounds[i - 1],
                                               weights.begin() + bounds[i], std::int64_t{0}));
      }
      if (heaviest < best_weight) {
        best_weight = heaviest;
        best = bounds;
      }
      bounds.pop_back();
      return;
    }
    const int left = parts - static_cast<int>(bounds.size());
    for (int bound = bounds.back() + 1; bound <= layers - left; ++bound) {
      bounds.push_back(bound);
      self(self);
      bounds.pop_back();
    }
  };
  go(go);
  return best;
}

TEST(Segmentation, FindsWhatTryingAllSplitsFinds) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::int64_t> weights(1 + random() % 9);
    for (std::int64_t& weight : weights) weight = random() % (round % 2 == 0 ? 4 : 1000);
    for (int parts = 1; parts <= static_cast<int>(weights.size()); ++parts) {
      EXPECT_EQ(segment_by_weight(weights, parts), best_by_trying(weights, parts));
    }
  }
}

TEST(Segmentation, RefusesWeightsItCannotCount) {
  EXPECT_THAT(problem_of([] {
                (void)segment_by_weight({1, -1}, 1);
              }),
              HasSubstr("weights must not be negative, found -1 of layer 1"));
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(problem_of([&] {
                (void)segment_by_weight({large, 1}, 2);
              }),
              HasSubstr("up to layer 1 is too large to count"));
  EXPECT_THAT(segment_by_weight({large - 1, 1}, 2), ElementsAre(0, 1, 2));
}

TEST(Segmentation, NeedsALayerForEachPart) {
  for (const auto& call : std::vector<std::function<void()>>{
           [] { (void)segment_uniform(3, 4); },
           [] {
             (void)segment_by_weight({1, 2, 3}, 4);
           },
           [] {
             (void)segment_by_name({"A", "A", "A"}, "A", 4);
           },
           [] {
             check_bounds({0, 1, 2, 3, 3}, 3, 4);
           },
       }) {
    EXPECT_EQ(problem_of(call),
              "[segmentation] each part needs a layer: 4 parts, found 3 layers; take fewer stages "
              "or chunks");
  }
  EXPECT_THAT(problem_of([] { (void)segment_uniform(3, 0); }), HasSubstr("at least one part"));
}

TEST(Segmentation, ChecksBounds) {
  EXPECT_NO_THROW(check_bounds({0, 3, 4, 9}, 9, 3));
  EXPECT_THAT(problem_of([] {
                check_bounds({0, 9}, 9, 2);
              }),
              HasSubstr("2 parts need 3 bounds, from 0 to the number of layers, found 2"));
  EXPECT_THAT(problem_of([] {
                check_bounds({1, 3, 9}, 9, 2);
              }),
              HasSubstr("the first bound must be 0, found 1"));
  EXPECT_THAT(problem_of([] {
                check_bounds({0, 3, 3, 9}, 9, 3);
              }),
              HasSubstr("bounds must grow, found 3 after 3; no part may be empty"));
  EXPECT_THAT(problem_of([] {
                check_bounds({0, 3, 8}, 9, 2);
              }),
              HasSubstr("the last bound must be the number of layers, 9, found 8"));
}

TEST(Segmentation, IsReadFromText) {
  using enum SegmentationMethod;
  EXPECT_EQ(parse_segmentation("uniform"), Segmentation{});
  EXPECT_EQ(parse_segmentation(" memory "), (Segmentation{kMemory, {}, {}}));
  EXPECT_EQ(parse_segmentation("time"), (Segmentation{kTime, {}, {}}));
  EXPECT_EQ(parse_segmentation("layer:Block"), (Segmentation{kLayerName, "Block", {}}));
  EXPECT_EQ(parse_segmentation("0,4, 8"), (Segmentation{kBounds, {}, {0, 4, 8}}));
  EXPECT_EQ(parse_segmentation("[0, 4]"), (Segmentation{kBounds, {}, {0, 4}}));
  for (const char* text : {"uniform", "memory", "time", "layer:Block", "0,4,8"}) {
    EXPECT_EQ(to_string(parse_segmentation(text)), text);
  }
}

TEST(Segmentation, SaysWhatIsWrongInAText) {
  const auto problem = [](const char* text) {
    return problem_of([&] { (void)parse_segmentation(text); });
  };
  EXPECT_EQ(problem("unifrom"),
            "[segmentation] \"unifrom\" is no way to split a model; accepted are uniform, "
            "layer:Name, memory, time, and bounds such as 0,4,8");
  EXPECT_THAT(problem(""), HasSubstr("is no way to split a model"));
  EXPECT_THAT(problem("layer: "), HasSubstr("names no layer"));
  EXPECT_THAT(problem("0,4x,8"), HasSubstr("holds \"4x\" where a whole number was wanted"));
  EXPECT_THAT(problem("0,,8"), HasSubstr("holds \"\" where"));
  EXPECT_THAT(problem("[0,8"), HasSubstr("does not end with \"]\""));
  EXPECT_THAT(problem("["), HasSubstr("does not end with \"]\""));
  EXPECT_THAT(problem("[]"), HasSubstr("holds \"\" where"));
  EXPECT_THAT(problem("0,99999999999"), HasSubstr("holds \"99999999999\""));
}

TEST(Segmentation, SplitsByEveryMethod) {
  const SegmentationLayers layers{{"A", "B", "A", "B"}, {1, 1, 1, 9}, {9, 1, 1, 1}};
  const auto bounds = [&](const char* text) {
    return segment(parse_segmentation(text), layers, 2);
  };
  EXPECT_THAT(bounds("uniform"), ElementsAre(0, 2, 4));
  EXPECT_THAT(bounds("layer:A"), ElementsAre(0, 1, 4));
  EXPECT_THAT(bounds("memory"), ElementsAre(0, 3, 4));
  EXPECT_THAT(bounds("time"), ElementsAre(0, 1, 4));
  EXPECT_THAT(bounds("0,1,4"), ElementsAre(0, 1, 4));
  EXPECT_THAT(problem_of([&] { (void)bounds("0,4"); }), HasSubstr("2 parts need 3 bounds"));
}

TEST(Segmentation, NeedsAProfileForWeights) {
  const SegmentationLayers layers{{"A", "B"}, {}, {1}};
  EXPECT_THAT(
      problem_of([&] { (void)segment(parse_segmentation("memory"), layers, 2); }),
      HasSubstr("\"memory\" splits by a profile, and there is none; record one first, or use"));
  EXPECT_THAT(problem_of([&] { (void)segment(parse_segmentation("time"), layers, 2); }),
              HasSubstr("\"time\" needs a weight for each of the 2 layers, found 1"));
}

}  // namespace
}  // namespace spillway
