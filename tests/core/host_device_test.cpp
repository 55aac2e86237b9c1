#include "spillway/core/host_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/device_conformance.hpp"
#include "spillway/core/error.hpp"
#include "support/counting_device.hpp"
#include "support/error_text.hpp"
#include "support/faulty_device.hpp"
#include "support/manual_clock.hpp"

namespace spillway {
namespace {

using testing::CountingDevice;
using testing::DeviceCase;
using testing::DeviceConformance;
using testing::FaultyDevice;

/// A wrapper together with the device it wraps.
template <typename Wrapper, typename... Arguments>
std::shared_ptr<Device> wrapped(Arguments... arguments) {
  struct Both {
    HostDevice host;
    Wrapper wrapper;
    explicit Both(Arguments... each) : wrapper(host, each...) {}
  };
  auto both = std::make_shared<Both>(arguments...);
  return {both, &both->wrapper};
}

INSTANTIATE_TEST_SUITE_P(
    Host, DeviceConformance,
    ::testing::Values(DeviceCase{"Host", [] { return std::make_shared<HostDevice>(); }},
                      DeviceCase{"Counting", [] { return wrapped<CountingDevice>(); }},
                      DeviceCase{"Faulty",
                                 [] { return wrapped<FaultyDevice>(testing::FaultOptions{}); }}),
    testing::case_name);

TEST(HostDevice, StampsEventsWithItsClock) {
  const auto clock = std::make_shared<testing::ManualClock>();
  HostDevice device(clock);
  const auto stream = device.make_stream("s");
  const auto start = device.make_event(Timing::kOn);
  const auto end = device.make_event(Timing::kOn);
  stream->record(*start);
  stream->synchronize();
  clock->advance(std::chrono::milliseconds(7));
  stream->record(*end);
  stream->synchronize();
  EXPECT_EQ(end->elapsed_since(*start), std::chrono::milliseconds(7));
}

TEST(HostDevice, ThrowsAnUnknownErrorByTheOperationsName) {
  HostDevice device;
  const auto stream = device.make_stream("s");
  stream->call("odd", [] { throw 7; });
  EXPECT_EQ(testing::error_text<DeviceError>([&] { device.synchronize(); }),
            "[odd] failed on stream \"s\" with an unknown error");
  device.synchronize();
}

TEST(HostDevice, SaysWhenAnEventHappenedOnItsClock) {
  HostDevice device;
  const SteadyClock clock;
  const auto stream = device.make_stream("s");
  const auto event = device.make_event(Timing::kOn);
  const Nanoseconds before = clock.now();
  stream->record(*event);
  event->synchronize();
  EXPECT_GE(host_time(*event), before);
  EXPECT_LE(host_time(*event), clock.now());
  EXPECT_THAT(testing::error_text<InvalidArgument>(
                  [&] { (void)host_time(*device.make_event(Timing::kOn)); }),
              ::testing::StartsWith("[elapsed] the event was never recorded"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(HostDevice, SaysWhenTheMachineHasNoMemoryLeft) {
  HostDevice device;
  EXPECT_EQ(testing::error_text<OutOfMemory>([&] { (void)device.allocate(Bytes(1ULL << 60U)); }),
            "[allocate] 1048576.0 TiB wanted on the host device, but the machine has no more; use "
            "smaller buffers or close other programs");
}
#endif

TEST(Stream, QueuesNoWaitThatIsAlreadyImplied) {
  HostDevice host;
  CountingDevice device(host);
  const auto first = device.make_stream("first");
  const auto second = device.make_stream("second");
  const auto early = device.make_event(Timing::kOff);
  const auto late = device.make_event(Timing::kOff);
  const auto never = device.make_event(Timing::kOff);
  first->record(*early);
  first->record(*late);
  first->wait(*late);
  second->wait(*never);
  EXPECT_EQ(device.calls().waits, 0U);
  second->wait(*late);
  second->wait(*late);
  second->wait(*early);
  EXPECT_EQ(device.calls().waits, 1U);
  first->record(*early);
  second->wait(*early);
  EXPECT_EQ(device.calls().waits, 2U);
  device.synchronize();
}

TEST(FaultyDevice, DelaysWorkUntilItIsWaitedFor) {
  HostDevice host;
  FaultyDevice device(host, {.seed = 1, .hold_back = 1.0, .pause = 0});
  const auto stream = device.make_stream("s");
  bool ran = false;
  stream->call("work", [&ran] { ran = true; });
  host.synchronize();
  EXPECT_FALSE(ran);
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST(FaultyDevice, FailsTheCopiesThatTheTestChooses) {
  HostDevice host;
  FaultyDevice device(host, {.seed = 1, .fault = [](std::uint64_t copy) {
                               return copy == 1   ? testing::Fault::kRefuse
                                      : copy == 2 ? testing::Fault::kFailLater
                                                  : testing::Fault::kNone;
                             }});
  const auto stream = device.make_stream("s");
  std::byte from{5};
  std::byte to{0};
  const auto copy = [&] { stream->copy(&to, &from, Bytes(1), CopyKind::kOnDevice); };
  copy();
  stream->synchronize();
  EXPECT_EQ(to, from);
  EXPECT_EQ(testing::error_text<DeviceError>(copy), "[copy] refused, as the test wants it");
  copy();
  EXPECT_EQ(testing::error_text<DeviceError>([&] { stream->synchronize(); }),
            "[copy] failed on stream \"s\": as the test wants it");
}

}  // namespace
}  // namespace spillway
