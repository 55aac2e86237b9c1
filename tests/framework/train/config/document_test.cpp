#include <filesystem>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/config/config_keys.hpp"
#include "util/files.hpp"

namespace spillway::app {
namespace {

using ::testing::HasSubstr;

std::string document() {
  return read_file("test", std::filesystem::path(SPILLWAY_DOCS) / "train.md");
}

// If it fails: put what `spillway config --reference` prints between the two comments.
TEST(TrainDocument, HasTheKeysAsTheProgramHasThem) {
  EXPECT_THAT(document(), HasSubstr("<!-- keys: begin -->\n\n" + reference_markdown() +
                                    "\n<!-- keys: end -->\n"));
}

TEST(TrainDocument, HasEveryKeyOnLinesOfAtMost120Columns) {
  std::istringstream lines(reference_markdown());
  std::string line;
  std::size_t keys = 0;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 120) << line;
    keys += line.starts_with("- `") ? 1 : 0;
  }
  EXPECT_EQ(keys, config_keys().size());
}

TEST(TrainDocument, HasExamplesThatAreConfigs) {
  const std::string text = document();
  int found = 0;
  for (std::size_t at = text.find("```toml\n"); at != std::string::npos;
       at = text.find("```toml\n", at)) {
    at += 8;
    const std::string example = text.substr(at, text.find("```", at) - at);
    EXPECT_NO_THROW((void)parse_config(example, "docs/train.md"));
    ++found;
  }
  EXPECT_GE(found, 1);
}

}  // namespace
}  // namespace spillway::app
