// Profiles, plans and rules in files.
#include <filesystem>

#include <gtest/gtest.h>

#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"
#include "util/files.hpp"

namespace spillway {
namespace {

using testing::error_text;

TEST(PlanFiles, ThatAreNotThereAreErrorsWithPathAndReason) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "no" / "such.json";
  const std::string why = path.string() + ": No such file or directory";
  EXPECT_EQ(error_text<IoError>([&] { (void)load_profile(path); }), "[profile] cannot read " + why);
  EXPECT_EQ(error_text<IoError>([&] { (void)load_plan(path); }), "[plan] cannot read " + why);
  EXPECT_EQ(error_text<IoError>([&] { (void)load_rules(path); }), "[rules] cannot read " + why);
  EXPECT_EQ(error_text<IoError>([&] { save_profile({}, path); }), "[profile] cannot write " + why);
  EXPECT_EQ(error_text<IoError>([&] { save_plan({}, path); }), "[plan] cannot write " + why);
  EXPECT_EQ(error_text<IoError>([&] { (void)load_profile(folder.path()); }),
            "[profile] cannot read " + folder.path().string() + ": Is a directory");
}

TEST(PlanFiles, GiveBackTheProfileAndThePlanThatWereSaved) {
  const testing::TemporaryFolder folder;
  const Profile profile = testing::transformer_profile({.layers = 2});
  save_profile(profile, folder.path() / "p.json");
  EXPECT_EQ(load_profile(folder.path() / "p.json"), profile);
  const Plan plan = make_plan(profile, parse_rules("[[rule]]\naction = \"offload\"", "r.toml"));
  save_plan(plan, folder.path() / "plan.json");
  EXPECT_EQ(load_plan(folder.path() / "plan.json"), plan);
}

TEST(PlanFiles, NameThemselvesInErrors) {
  const testing::TemporaryFolder folder;
  write_file("test", folder.path() / "p.json", "{");
  const std::string text =
      error_text<ConfigError>([&] { (void)load_profile(folder.path() / "p.json"); });
  EXPECT_EQ(text.find("[profile] " + (folder.path() / "p.json").string() +
                      ": the document: is not JSON: "),
            0U)
      << text;
}

}  // namespace
}  // namespace spillway
