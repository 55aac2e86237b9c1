#include "train/run/metrics_file.hpp"

#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using spillway::testing::TemporaryFolder;
using testing::text_of;

TEST(MetricsFile, HasALineAsSoonAsItIsWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "new" / "metrics.jsonl";
  MetricsFile file(path);
  file.write({{"step", 1}, {"loss", 2.5}});
  EXPECT_EQ(text_of(path), "{\"step\":1,\"loss\":2.5}\n");
  file.write({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(text_of(path), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null}\n");
}

TEST(MetricsFile, BeginsEmptyWithoutResuming) {
  const TemporaryFolder folder;
  const auto path = folder.write("metrics.jsonl", "{\"step\":1}\n");
  const MetricsFile file(path);
  EXPECT_EQ(text_of(path), "");
}

TEST(MetricsFile, LosesTheStepsAfterTheCheckpointAndGoesOn) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  MetricsFile file(path, 2);
  EXPECT_EQ(text_of(path), "{\"step\":1}\n{\"step\":2}\n");
  file.write({{"step", 3}, {"again", true}});
  EXPECT_EQ(text_of(path), "{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"again\":true}\n");
}

TEST(MetricsFile, LosesALineThatWasNotWrittenToItsEnd) {
  const TemporaryFolder folder;
  for (const char* end :
       {"{\"step\":2", "{\"step\":2}", "garbage\n", "[1]\n", "{\"loss\":1}\n", ""}) {
    const auto path = folder.write("metrics.jsonl", std::string("{\"step\":1}\n") + end);
    const MetricsFile file(path, 9);
    EXPECT_EQ(text_of(path), "{\"step\":1}\n") << end;
  }
}

TEST(MetricsFile, IsMadeWhereThereIsNothingToResume) {
  const TemporaryFolder folder;
  MetricsFile file(folder.path() / "metrics.jsonl", 4);
  file.write({{"step", 5}});
  EXPECT_EQ(text_of(folder.path() / "metrics.jsonl"), "{\"step\":5}\n");
}

TEST(MetricsFile, IsNamedIfItCannotBeWritten) {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  EXPECT_EQ(error_text<IoError>([&] { const MetricsFile metrics(file / "metrics.jsonl"); }),
            "[metrics] cannot write " + (file / "metrics.jsonl").string() +
                "; give a folder in train.out that may be written to");
}

}  // namespace
}  // namespace spillway::app
