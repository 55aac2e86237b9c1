#include "util/files.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "spillway/core/error.hpp"
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

}  // namespace
}  // namespace spillway
