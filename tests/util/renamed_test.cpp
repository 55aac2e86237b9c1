#include "util/renamed.hpp"

#include <array>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<RenamedKey, 2> kRenamed = {{{"tall", "height"}, {"broad", "width"}}};

Json with_old_names(const char* text) {
  Json json = Json::parse(text);
  add_old_names(json, kRenamed);
  return json;
}

TEST(OldNames, RepeatValuesAtTheEndOfEachObject) {
  EXPECT_EQ(with_old_names(R"({"height": {"width": 3, "depth": 1}, "list": [{"height": [4]}, 5]})")
                .dump(),
            R"({"height":{"width":3,"depth":1,"broad":3},)"
            R"("list":[{"height":[4],"tall":[4]},5],)"
            R"("tall":{"width":3,"depth":1,"broad":3},)"
            R"("renamed":{"tall":"height","broad":"width"}})");
}

TEST(OldNames, AreListedWhereNothingIsRepeated) {
  EXPECT_EQ(with_old_names("{}").dump(), R"({"renamed":{"tall":"height","broad":"width"}})");
}

}  // namespace
}  // namespace spillway
