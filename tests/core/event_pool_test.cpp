#include "spillway/core/event_pool.hpp"

#include <optional>

#include <gtest/gtest.h>

#include "spillway/core/host_device.hpp"

namespace spillway {
namespace {

TEST(EventPool, ReusesAnEventWithoutReferences) {
  HostDevice device;
  EventPool pool(device, Timing::kOff);
  EventRef first = pool.take();
  const EventRef copy = first;
  const Event* const address = first.get();
  first.reset();
  EXPECT_NE(pool.take().get(), address);
  EXPECT_EQ(pool.made(), 2U);
  const EventRef second = pool.take();
  EXPECT_EQ(pool.made(), 2U);
  EXPECT_NE(second.get(), address);
}

TEST(EventPool, AnEventMayOutliveThePool) {
  HostDevice device;
  const auto stream = device.make_stream("s");
  std::optional<EventPool> pool(std::in_place, device, Timing::kOff);
  const EventRef event = pool->take();
  pool.reset();
  stream->record(*event);
  event->synchronize();
  EXPECT_TRUE(event->query());
}

}  // namespace
}  // namespace spillway
