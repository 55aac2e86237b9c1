#include "spillway/plan/layer_set.hpp"

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;

std::vector<int> members(const char* text, int layers) {
  const LayerSet set = parse_layers(text);
  std::vector<int> found;
  for (int layer = 0; layer < layers; ++layer) {
    if (set.contains(layer, layers)) found.push_back(layer);
  }
  return found;
}

TEST(Layers, AreReadAsNumbersRangesAndLists) {
  using Members = std::vector<int>;
  EXPECT_EQ(members("3", 8), (Members{3}));
  EXPECT_EQ(members("0..3", 8), (Members{0, 1, 2, 3}));
  EXPECT_EQ(members("0..2,5", 8), (Members{0, 1, 2, 5}));
  EXPECT_EQ(members(" 0 .. 2 , 5 ", 8), (Members{0, 1, 2, 5}));
  EXPECT_EQ(members("6..99", 8), (Members{6, 7}));
  EXPECT_EQ(members("9", 8), Members{});
}

TEST(Layers, CountFromTheEndWhenNegative) {
  using Members = std::vector<int>;
  EXPECT_EQ(members("-1", 8), (Members{7}));
  EXPECT_EQ(members("-2..-1", 8), (Members{6, 7}));
  EXPECT_EQ(members("0..-1", 4), (Members{0, 1, 2, 3}));
  EXPECT_EQ(members("2..-2", 6), (Members{2, 3, 4}));
  EXPECT_EQ(members("-9..1", 4), (Members{0, 1}));
  EXPECT_EQ(members("5..-1", 4), Members{});
}

TEST(Layers, KnowTheRangeALayerIsIn) {
  const LayerSet set = parse_layers("0..3,4..-1");
  EXPECT_EQ(set.range_of(2, 8), (LayerRange{0, 3}));
  EXPECT_EQ(set.range_of(6, 8), (LayerRange{4, 7}));
}

TEST(Layers, AreWrittenAsTheyAreRead) {
  for (const char* text : {"3", "0..9", "0..9,12", "-1", "0..-1", "4..7,0..3"}) {
    EXPECT_EQ(to_string(parse_layers(text)), text);
  }
}

TEST(Layers, SayWhatIsWrong) {
  struct Refused {
    const char* text;
    const char* reason;
  };
  for (const Refused& each : {Refused{"", "\"\" is no layer number"},
                              {"all", "\"all\" is no layer number"},
                              {"0...9", "\".9\" is no layer number"},
                              {"0-9", "\"0-9\" is no layer number"},
                              {"1,,2", "\"\" is no layer number"},
                              {"3..", "\"\" is no layer number"},
                              {"9..0", "\"9..0\" runs backwards"},
                              {"0, -1..-3", "\"-1..-3\" runs backwards"},
                              {"99999999999", "\"99999999999\" is no layer number"}}) {
    EXPECT_EQ(error_text<InvalidArgument>([&] { (void)parse_layers(each.text); }),
              std::string("[layers] cannot read \"") + each.text + "\" as layers: " + each.reason +
                  "; write \"3\", \"0..9\", \"0..9,12\" or \"-1\" for the last");
  }
}

}  // namespace
}  // namespace spillway
