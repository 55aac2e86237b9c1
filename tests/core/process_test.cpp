#include "spillway/core/process.hpp"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"
#include "support/error_text.hpp"
#include "support/forked.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::in_child;

TEST(ProcessId, IsTheSameOnAllThreads) {
  const ProcessId here = ProcessId::current();
  bool same = false;
  std::thread([&] { same = here.is_current(); }).join();
  EXPECT_TRUE(same);
}

TEST(ProcessId, DiffersInAChildAndInItsChild) {
  const ProcessId parent = ProcessId::current();
  EXPECT_EQ(in_child([&] {
              if (parent.is_current()) return 1;
              const ProcessId child = ProcessId::current();
              if (!child.is_current()) return 2;
              const std::string grandchild =
                  in_child([&] { return parent.is_current() || child.is_current() ? 3 : 0; });
              return grandchild == "exited with 0" ? 0 : 4;
            }),
            "exited with 0");
  EXPECT_TRUE(parent.is_current());
}

TEST(ProcessOwned, IsDestroyedOnlyInTheProcessThatMadeIt) {
  int destroyed = 0;
  struct Counts {
    explicit Counts(int& count) : count_(count) {}
    Counts(const Counts&) = delete;
    Counts& operator=(const Counts&) = delete;
    ~Counts() { ++count_; }
    int& count_;
  };
  { const ProcessOwned<Counts> here(destroyed); }
  EXPECT_EQ(destroyed, 1);
  auto passed_on = std::make_unique<ProcessOwned<Counts>>(destroyed);
  EXPECT_EQ(in_child([&] {
              passed_on.reset();
              { const ProcessOwned<Counts> of_the_child(destroyed); }
              return destroyed == 2 ? 0 : destroyed;
            }),
            "exited with 0");
}

TEST(HostDevice, MayBeDestroyedInAChildWhoseParentsThreadsWait) {
  auto device = std::make_unique<HostDevice>();
  auto waits = device->make_stream("waits");
  auto works = device->make_stream("works");
  const auto event = device->make_event(Timing::kOff);
  works->record(*event);
  waits->wait(*event);
  device->synchronize();
  EXPECT_EQ(in_child([&] {
              waits.reset();
              works.reset();
              device.reset();
              return 0;
            }),
            "exited with 0");
}

TEST(HostDevice, SaysInAChildThatItsStreamsHaveNoThread) {
  HostDevice device;
  const auto stream = device.make_stream("copy");
  stream->synchronize();
  EXPECT_EQ(
      in_child([&] {
        const std::string text = testing::error_text<DeviceError>([&] { stream->synchronize(); });
        return text.find("\"copy\" has no thread in a process made by fork()") != std::string::npos
                   ? 0
                   : 1;
      }),
      "exited with 0");
}

}  // namespace
}  // namespace spillway
