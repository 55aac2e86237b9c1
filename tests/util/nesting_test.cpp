#include "util/nesting.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "util/json_fields.hpp"
#include "util/toml_reader.hpp"

namespace spillway {
namespace {

using testing::error_text;
using ::testing::HasSubstr;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Nesting, OfJsonCountsListsAndObjectsButNotTheirTexts) {
  const std::string most = repeated("[", kMostJsonNesting) + repeated("]", kMostJsonNesting);
  EXPECT_EQ(line_of_deep_json(most), std::nullopt);
  EXPECT_EQ(line_of_deep_json("\n\n{\"a\": " + most + "}"), 3);
  EXPECT_EQ(line_of_deep_json("[" + repeated("[{}, []],", 1000) + "0]"), std::nullopt);
  EXPECT_EQ(line_of_deep_json("[\"" + repeated("[{", 1000) + "\\\"[[\"]"), std::nullopt);
}

TEST(Nesting, OfTomlCountsPartsOfKeysAndBracketsButNotTextsAndComments) {
  const std::string key = repeated("a.", kMostTomlNesting - 1) + "a";
  EXPECT_EQ(line_of_deep_toml(key + " = 1.5\n" + key + " = 2.5\n"), std::nullopt);
  EXPECT_EQ(line_of_deep_toml("x = 1\na." + key + " = 1"), 2);
  EXPECT_EQ(line_of_deep_toml("[\"b\".'c'." + key + "]"), 1);
  EXPECT_EQ(line_of_deep_toml("x = { " + key + ".a = 1 }"), 1);
  const std::string lists = repeated("[", kMostTomlNesting) + repeated("]", kMostTomlNesting);
  EXPECT_EQ(line_of_deep_toml("x = " + lists), std::nullopt);
  EXPECT_EQ(line_of_deep_toml("x = [\n" + lists + "]"), 2);
  EXPECT_EQ(line_of_deep_toml("x = [" + repeated("0.5, ", 1000) + "]"), std::nullopt);
  const std::string dots = repeated(".", 1000) + repeated("[", 1000);
  for (const std::string& text :
       {"# " + dots, "x = \"\\\"" + dots + "\"", "x = '\\" + dots + "'",
        "x = \"\"\"a\n\"" + dots + "\\\"\"\"\"\"\"", "x = '''a\n''" + dots + "'''''",
        "x = \"\"\ny = ''\nz = \"" + dots + "\""}) {
    EXPECT_EQ(line_of_deep_toml(text), std::nullopt) << text;
    EXPECT_TRUE(line_of_deep_toml(text + "\n" + key + ".a = 1")) << text;
  }
}

// Each of these took more stack than there is.
TEST(Nesting, IsAnErrorBeforeItTakesTheStack) {
  for (const std::string& text :
       {repeated("a.", 40'000) + "a = 1", "[" + repeated("a.", 40'000) + "a]",
        "x = " + repeated("[", 40'000), "x = " + repeated("{a=", 40'000)}) {
    EXPECT_EQ(error_text<ConfigError>([&] { (void)parse_toml(text, "deep.toml"); }),
              "[rules] deep.toml:1: nested too deeply: a key has at most 32 parts, and at most 32 "
              "lists and tables are within each other; write fewer");
  }
  const JsonSource source{"plan", "deep.json"};
  for (const std::string& brackets :
       {repeated("[", 100'000) + repeated("]", 100'000),
        repeated("{\"a\":", 100'000) + "1" + repeated("}", 100'000)}) {
    for (const char* const schema : {"plan/4", "plan/3"}) {
      const std::string text =
          R"({"schema": ")" + std::string(schema) + R"(", "x": )" + brackets + "}";
      EXPECT_EQ(
          error_text<ConfigError>([&] { (void)parse_document(text, source, "plan/4", "plan/3"); }),
          "[plan] deep.json: the document: line 1 is nested too deeply: at most 64 lists and "
          "objects are within each other");
    }
  }
}

// What is as deep as can be written is read, and freed, with little stack.
TEST(Nesting, OfTheDeepestTomlIsRead) {
  const std::string key = repeated("a.", kMostTomlNesting - 1) + "a";
  const std::string text = "[" + key + "]\n" + repeated(key + " = {", kMostTomlNesting) + key +
                           " = 1" + repeated("}", kMostTomlNesting);
  EXPECT_FALSE(parse_toml(text, "deep.toml").empty());
}

}  // namespace
}  // namespace spillway
