/// Where buffers live and streams run. Two implementations of one contract: HostDevice
/// (worker threads and memcpy; every race can be tested without a GPU) and CudaDevice.
///
/// Lifetime: a device outlives everything that came from it: streams, events, buffers,
/// registrations, and the tiers that hold events of its streams.
/// Threads: all calls may come from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "spillway/core/bytes.hpp"
#include "spillway/core/event.hpp"
#include "spillway/core/stream.hpp"

namespace spillway {

class Device;

/// Memory of a device, freed when destroyed. Move-only. Freeing does not wait: the owner makes sure
/// that no queued work still uses it.
class DeviceBuffer {
 public:
  DeviceBuffer() noexcept = default;
  DeviceBuffer(Device& device, std::byte* data, Bytes size) noexcept
      : device_(&device), data_(data), size_(size) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceBuffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] Bytes size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_, size_.count()}; }

  void swap(DeviceBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  Bytes size_;
};

/// Host memory made known to a device, so that copies run at the link's speed without the host.
/// Undone when destroyed. Move-only. The memory must stay mapped as long as this lives.
class HostRegistration {
 public:
  HostRegistration() noexcept = default;
  HostRegistration(Device& device, std::byte* data) noexcept : device_(&device), data_(data) {}
  HostRegistration(HostRegistration&& other) noexcept { swap(other); }
  HostRegistration& operator=(HostRegistration&& other) noexcept {
    HostRegistration(std::move(other)).swap(*this);
    return *this;
  }
  ~HostRegistration();

  void swap(HostRegistration& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
  }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
};

enum class Timing { kOff, kOn };

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// "host" or "cuda:0".
  [[nodiscard]] virtual std::string name() const = 0;

  /// A new stream, independent of all others. `name` shows up in errors and traces.
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;

  /// A new event, not recorded yet. With timing, each recording costs a little more.
  [[nodiscard]] virtual std::unique_ptr<Event> make_event(Timing timing) = 0;

  /// Memory on the device, aligned to 256 bytes or more, not initialised. May synchronise.
  /// Errors: OutOfMemory; InvalidArgument for zero bytes.
  [[nodiscard]] DeviceBuffer allocate(Bytes size);

  /// Registers host memory. Slow (a page walk); meant for a background thread. `memory` must be
  /// page-aligned.
  /// Errors: OutOfMemory when the pages cannot be locked; nothing is registered then.
  [[nodiscard]] HostRegistration register_host(std::span<std::byte> memory);

  /// The NUMA node next to this device, if the machine has more than one and says so.
  [[nodiscard]] virtual std::optional<int> numa_node() const { return std::nullopt; }

  /// Blocks the host until all work on all streams is done.
  /// Errors: as Stream::synchronize().
  virtual void synchronize() = 0;

  /// For wrappers that pass calls on; everyone else uses allocate() and register_host().
  virtual std::byte* do_allocate(Bytes size) = 0;
  virtual void do_deallocate(std::byte* data) noexcept = 0;
  virtual void do_register(std::span<std::byte> memory) = 0;
  virtual void do_unregister(std::byte* data) noexcept = 0;
};

}  // namespace spillway
