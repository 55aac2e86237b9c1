/// What devices that stand in front of another device share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "spillway/core/device.hpp"

namespace spillway::testing {

/// Passes on everything that has nothing to do with streams and events.
class WrappingDevice : public Device {
 public:
  /// Does not own `inner`, which must outlive this.
  explicit WrappingDevice(Device& inner) : inner_(&inner) {}

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] std::optional<int> numa_node() const override { return inner_->numa_node(); }

  std::byte* do_allocate(Bytes size) override { return inner_->do_allocate(size); }
  void do_deallocate(std::byte* data) noexcept override { inner_->do_deallocate(data); }
  void do_register(std::span<std::byte> memory) override { inner_->do_register(memory); }
  void do_unregister(std::byte* data) noexcept override { inner_->do_unregister(data); }

 protected:
  [[nodiscard]] Device& inner() const noexcept { return *inner_; }

 private:
  Device* inner_;
};

}  // namespace spillway::testing
