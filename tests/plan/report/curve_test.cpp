#include "spillway/plan/curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Curve example() {
  Curve curve{380'000'000, 24_GiB, {}};
  curve.points.push_back({1_GiB, false, 0, 0, {}, {}, {}, {}});
  curve.points.push_back({6_GiB, true, 399'000'000, 395'200'000, 5_GiB, 2_GiB, 6_GiB, 12_GiB});
  curve.points.push_back({12_GiB, true, 383'800'000, 382'000'000, 12_GiB, 10_GiB, 5_GiB, 5_GiB});
  return curve;
}

TEST(Curves, AreATableWithSharesAndMultiplesOfTheBase) {
  const std::string text = to_text(example());
  EXPECT_THAT(text, HasSubstr("base: everything kept, 380.0 ms a step, peak 24.0 GiB\n"));
  EXPECT_THAT(text, ContainsRegex("budget +of base +peak +step +bound +kept +offloaded +"
                                  "recomputed\n"));
  EXPECT_THAT(text, ContainsRegex("1.0 GiB +4 % +no plan\n"));
  EXPECT_THAT(text, ContainsRegex("6.0 GiB +25 % +5.0 GiB +1.050 x +1.040 x +10 % +30 % +60 %\n"));
  EXPECT_THAT(text,
              ContainsRegex("12.0 GiB +50 % +12.0 GiB +1.010 x +1.005 x +50 % +25 % +25 %\n"));
}

TEST(Curves, AreJsonForPrograms) {
  const auto json = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(json["schema"], "spillway.curve/1");
  EXPECT_EQ(json["base_ns"], 380'000'000);
  EXPECT_EQ(json["base_peak"], (24_GiB).count());
  ASSERT_EQ(json["points"].size(), 3U);
  EXPECT_EQ(json["points"][0]["feasible"], false);
  EXPECT_FALSE(json["points"][0].contains("step_ns"));
  EXPECT_EQ(json["points"][1]["step_ns"], 399'000'000);
  EXPECT_EQ(json["points"][2]["recomputed"], (5_GiB).count());
}

TEST(Curves, ArePicturesWithUnitsForLightAndDark) {
  const std::string svg = to_svg(example());
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  for (const char* text : {"budget, GiB", "step time, ms", "everything kept", "lower bound",
                           "prefers-color-scheme: dark"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("<title>6.0 GiB: 399 ms; kept 2.0 GiB, offloaded 6.0 GiB, recomputed "
                             "12.0 GiB</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("1.0 GiB:")));
}

TEST(Curves, PutMoreMemoryToTheRightAndMoreTimeAbove) {
  const std::string svg = to_svg(example());
  const auto points = svg.substr(svg.find("class=\"step\" points=\""));
  double x1 = 0;
  double y1 = 0;
  double x2 = 0;
  double y2 = 0;
  ASSERT_EQ(
      std::sscanf(points.c_str(), "class=\"step\" points=\"%lf,%lf %lf,%lf\"", &x1, &y1, &x2, &y2),
      4);
  EXPECT_LT(x1, x2);
  EXPECT_LT(y1, y2);
}

TEST(Curves, AreDrawnForOneBudgetForNoneAndForTinyModels) {
  Curve curve = example();
  curve.points.pop_back();
  EXPECT_THAT(to_svg(curve), HasSubstr("6.0 GiB: 399 ms"));
  curve.points.pop_back();
  EXPECT_THAT(to_svg(curve), HasSubstr("none of the budgets has a plan"));
  const Curve tiny{90'000, 3_MiB, {{1_MiB, true, 95'000, 91'000, 1_MiB, 1_MiB, 1_MiB, 1_MiB}}};
  EXPECT_THAT(to_svg(tiny), HasSubstr("budget, MiB"));
  EXPECT_THAT(to_svg(tiny), HasSubstr("step time, us"));
  const Curve nothing{0, {}, {{{}, true, 0, 0, {}, {}, {}, {}}}};
  EXPECT_THAT(to_svg(nothing), Not(ContainsRegex("nan|inf")));
  EXPECT_THAT(to_text(nothing), HasSubstr("0 B"));
}

}  // namespace
}  // namespace spillway
