#include "spillway/core/error.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(Error, TextBeginsWithTheOperation) {
  const OutOfMemory error("slab", "8.0 GiB wanted, 4.0 GiB found; lower the host limit");
  EXPECT_STREQ(error.what(), "[slab] 8.0 GiB wanted, 4.0 GiB found; lower the host limit");
  EXPECT_EQ(error.operation(), "slab");
}

TEST(Error, EveryKindIsAnError) {
  EXPECT_THROW(throw InvalidArgument("a", "b"), Error);
  EXPECT_THROW(throw OutOfMemory("a", "b"), Error);
  EXPECT_THROW(throw DeviceError("a", "b"), Error);
  EXPECT_THROW(throw IoError("a", "b"), Error);
  EXPECT_THROW(throw PlanInfeasible("a", "b"), Error);
  EXPECT_THROW(throw ConfigError("a", "b"), Error);
}

}  // namespace
}  // namespace spillway
