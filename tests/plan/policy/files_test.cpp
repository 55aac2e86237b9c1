#include "util/files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "spillway_files_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& each : std::filesystem::directory_iterator(folder_)) {
      found.push_back(each.path().filename().string());
    }
    return found;
  }

  std::filesystem::path folder_;
};

TEST_F(Files, AreWrittenWholeAndLeaveNothingBeside) {
  const std::filesystem::path path = folder_ / "a.json";
  const std::string text(300'000, 'x');
  write_file("test", path, "old");
  write_file("test", path, text);
  EXPECT_EQ(read_file("test", path), text);
  EXPECT_EQ(names(), std::vector<std::string>{"a.json"});
}

TEST_F(Files, KeepTheOldOneWhenTheNewCannotBeWritten) {
  std::filesystem::create_directory(folder_ / "is_a_folder");
  const std::string text =
      error_text<IoError>([&] { write_file("plan", folder_ / "is_a_folder", "text"); });
  EXPECT_EQ(text, "[plan] cannot write " + (folder_ / "is_a_folder").string() + ": Is a directory");
  EXPECT_EQ(names(), std::vector<std::string>{"is_a_folder"});
}

TEST_F(Files, ThatAreNotThereAreErrorsWithPathAndReason) {
  const std::filesystem::path path = folder_ / "no" / "such.json";
  const std::string why = path.string() + ": No such file or directory";
  EXPECT_EQ(error_text<IoError>([&] { (void)load_profile(path); }), "[profile] cannot read " + why);
  EXPECT_EQ(error_text<IoError>([&] { (void)load_plan(path); }), "[plan] cannot read " + why);
  EXPECT_EQ(error_text<IoError>([&] { (void)load_rules(path); }), "[rules] cannot read " + why);
  EXPECT_EQ(error_text<IoError>([&] { save_profile({}, path); }), "[profile] cannot write " + why);
  EXPECT_EQ(error_text<IoError>([&] { save_plan({}, path); }), "[plan] cannot write " + why);
  EXPECT_EQ(error_text<IoError>([&] { (void)load_profile(folder_); }),
            "[profile] cannot read " + folder_.string() + ": Is a directory");
}

TEST_F(Files, GiveBackTheProfileAndThePlanThatWereSaved) {
  const Profile profile = testing::transformer_profile({.layers = 2});
  save_profile(profile, folder_ / "p.json");
  EXPECT_EQ(load_profile(folder_ / "p.json"), profile);
  const Plan plan = make_plan(profile, parse_rules("[[rule]]\naction = \"offload\"", "r.toml"));
  save_plan(plan, folder_ / "plan.json");
  EXPECT_EQ(load_plan(folder_ / "plan.json"), plan);
}

TEST_F(Files, NameThemselvesInErrors) {
  write_file("test", folder_ / "p.json", "{");
  const std::string text = error_text<ConfigError>([&] { (void)load_profile(folder_ / "p.json"); });
  EXPECT_EQ(
      text.find("[profile] " + (folder_ / "p.json").string() + ": the document: is not JSON: "), 0U)
      << text;
}

}  // namespace
}  // namespace spillway
