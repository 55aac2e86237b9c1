#include "train/checkpoint/durable_file.hpp"

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"
#include "train/data/mapped_file.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using spillway::testing::TemporaryFolder;

TEST(DurableFile, HasWhatWasWrittenAndSaysItsHash) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "a longer text that was there before");
  DurableFile file("test", path);
  file.write("ab");
  file.write("c");
  EXPECT_EQ(file.finish(), (FileStamp{3, 0x44bc2cf5ad770999U}));
  const MappedFile read("test", path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.bytes().data()), read.bytes().size()),
            "abc");
}

TEST(DurableFile, SaysWhyItCannotBeMade) {
  EXPECT_EQ(error_text<IoError>([] { DurableFile("test", "/nowhere/a"); }),
            "[test] cannot write /nowhere/a: No such file or directory");
}

TEST(DurableFile, SaysThatTheDiskIsFull) {
  DurableFile file("test", "/dev/full");
  EXPECT_EQ(error_text<IoError>([&] { file.write("abc"); }),
            "[test] cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace spillway::app
