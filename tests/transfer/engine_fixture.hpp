/// An engine on the host device, for tests.
#pragma once

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "spillway/core/host_device.hpp"
#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/engine.hpp"
#include "support/counting_device.hpp"

namespace spillway::testing {

using namespace spillway::literals;

inline constexpr Bytes kSize = 16_KiB;

class EngineTest : public ::testing::Test {
 protected:
  explicit EngineTest(Timing timing = Timing::kOff) : timing_(timing) {}

  /// Everything the engine stands on; a member each so that tests can look at it.
  HostDevice host_;
  CountingDevice device_{host_};
  Slab slab_{device_, {.capacity = 4_MiB, .chunk = 2_MiB, .prepare = 4_MiB}};
  HostTier host_tier_{slab_};
  CountingTier tier_{host_tier_};
  Timing timing_;
  TransferEngine engine_{device_, tier_, {.timing = timing_, .group = 1_MiB}};
  std::unique_ptr<Stream> compute_ = device_.make_stream("compute");

  DeviceBuffer filled(int value, Bytes size = kSize) {
    DeviceBuffer buffer = device_.allocate(size);
    compute_->fill(buffer.data(), std::byte(value), size);
    return buffer;
  }
  static bool holds(const DeviceBuffer& buffer, int value) {
    return std::all_of(buffer.span().begin(), buffer.span().end(),
                       [value](std::byte each) { return std::to_integer<int>(each) == value; });
  }
  void poison(const DeviceBuffer& buffer) {
    compute_->fill(buffer.data(), std::byte{0xEE}, buffer.size());
  }
};

}  // namespace spillway::testing
