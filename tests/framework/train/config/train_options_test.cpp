#include "train/config/train_options.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "train/config/config_keys.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<CommandOption> all_options() {
  std::vector<CommandOption> all = config_options();
  all.insert(all.end(), train_options().begin(), train_options().end());
  return all;
}

CommandOption option(const std::string& name) {
  for (const CommandOption& each : all_options()) {
    if (each.name == name) return each;
  }
  throw InvalidArgument("test", name);
}

TEST(TrainOptions, AreShortForKeysThatThereAre) {
  std::set<std::string> names;
  for (const CommandOption& each : all_options()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    if (!each.old_name.empty()) {
      EXPECT_TRUE(names.insert(each.old_name).second) << each.name;
    }
    for (const std::string& key : each.keys) EXPECT_NE(find_key(key), nullptr) << key;
    EXPECT_EQ(each.value.empty(), each.accepts == CommandOption::Accepts::kNothing) << each.name;
    EXPECT_EQ(each.words.empty(), each.accepts != CommandOption::Accepts::kWord) << each.name;
  }
}

TEST(TrainOptions, CanAllBeGiven) {
  TrainOptions options;
  for (const CommandOption& each : all_options()) apply(options, each, "1");
  EXPECT_TRUE(options.compare && options.baseline && options.digest);
  EXPECT_EQ(options.verify_every, 1);
  EXPECT_EQ(options.trace, "1");
  EXPECT_THAT(options.config.shorthands, ::testing::Contains("train.out=1"));
}

TEST(TrainOptions, GoBeforeWhatIsSet) {
  TrainOptions options;
  options.config.overrides = {"model.layers=3"};
  apply(options, option("--layers"), "2");
  apply(options, option("--seed"), "7");
  EXPECT_THAT(options.config.all(),
              ElementsAre("model.layers=2", "train.seed=7", "data.seed=7", "model.layers=3"));
}

TEST(TrainOptions, RefuseWhatIsNoWholeNumber) {
  TrainOptions options;
  for (const char* text : {"1.5", "0", "-1", "many", ""}) {
    EXPECT_THAT(
        error_text<InvalidArgument>([&] { apply(options, option("--verify-every"), text); }),
        HasSubstr("is no whole number above 0"));
  }
}

TEST(TrainOptions, NameTheirKeysInHelp) {
  EXPECT_EQ(option("--seed").full_help(), "Of weights, data and dropout (train.seed, data.seed)");
  EXPECT_EQ(option("--baseline").full_help(), "Train without Spillway");
}

TEST(TrainOptions, KeepTheOldNameOfTheBaseline) {
  EXPECT_EQ(option("--baseline").old_name, "--plain");  // The old name.
}

}  // namespace
}  // namespace spillway::app
