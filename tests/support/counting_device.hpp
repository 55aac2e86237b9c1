/// Counts the calls that reach a device, so that tests can say "no host synchronisation here".
#pragma once

#include <atomic>
#include <cstdint>

#include "support/wrapping_device.hpp"

namespace spillway::testing {

struct DeviceCalls {
  std::atomic<std::uint64_t> copies{0};  ///< Alone or in a batch.
  std::atomic<std::uint64_t> batches{0};
  std::atomic<std::uint64_t> records{0};
  std::atomic<std::uint64_t> waits{0};
  std::atomic<std::uint64_t> queries{0};       ///< Polling: of events and of streams.
  std::atomic<std::uint64_t> synchronizes{0};  ///< The host waits: events, streams, the device.
  std::atomic<std::uint64_t> streams{0};       ///< Made.
  std::atomic<std::uint64_t> events{0};        ///< Made.
  std::atomic<std::uint64_t> registrations{0};
  std::atomic<std::uint64_t> unregistrations{0};
  std::atomic<std::uint64_t> allocations{0};
};

class CountingDevice final : public WrappingDevice {
 public:
  using WrappingDevice::WrappingDevice;

  [[nodiscard]] const DeviceCalls& calls() const noexcept { return calls_; }

  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name) override;
  [[nodiscard]] std::unique_ptr<Event> make_event(Timing timing) override;
  void synchronize() override;
  std::byte* do_allocate(Bytes size) override;
  void do_register(std::span<std::byte> memory) override;
  void do_unregister(std::byte* data) noexcept override;

 private:
  DeviceCalls calls_;
};

}  // namespace spillway::testing
