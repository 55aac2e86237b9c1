/// The device contract on worker threads: a stream is a thread with a queue, a copy is memcpy, an
/// event is a point in a queue. It runs the same engine as a GPU does, so every ordering mistake
/// shows up under a thread sanitizer on any machine; and it is what CPU training uses.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "spillway/core/clock.hpp"
#include "spillway/core/device.hpp"

namespace spillway {

class HostQueue;

class HostDevice final : public Device {
 public:
  /// `clock` stamps events made with Timing::kOn.
  explicit HostDevice(std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>());
  ~HostDevice() override;

  [[nodiscard]] std::string name() const override { return "host"; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name) override;
  [[nodiscard]] std::unique_ptr<Event> make_event(Timing timing) override;
  void synchronize() override;

  std::byte* do_allocate(Bytes size) override;
  void do_deallocate(std::byte* data) noexcept override;
  /// Nothing to do: memcpy needs no locked pages.
  void do_register(std::span<std::byte> memory) override;
  void do_unregister(std::byte* data) noexcept override;

 private:
  std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::uint64_t next_stream_ = 1;
  std::vector<std::weak_ptr<HostQueue>> queues_;
};

/// When an event of a HostDevice happened, on that device's clock.
/// Errors: as Event::elapsed_since().
[[nodiscard]] Nanoseconds host_time(const Event& event);

}  // namespace spillway
