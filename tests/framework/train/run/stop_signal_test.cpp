#include "train/run/stop_signal.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace spillway::app {
namespace {

TEST(StopSignal, NotesTheFirstSignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const StopSignal stop;
    EXPECT_EQ(stop.received(), 0);
    (void)std::raise(signal);
    EXPECT_EQ(stop.received(), signal);
  }
}

TEST(StopSignalDeathTest, LetsTheSecondOneEndTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        (void)std::raise(SIGTERM);
        (void)std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignalDeathTest, IsNotThereAfterItsEnd) {
  EXPECT_EXIT(
      {
        { const StopSignal stop; }
        (void)std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace spillway::app
