/// Host memory that a device can copy to and from without the host.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "spillway/core/device.hpp"

namespace spillway::testing {

class RegisteredMemory {
 public:
  RegisteredMemory(Device& device, Bytes size)
      : size_(round_up(size, Bytes(4096))),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, size_.count())), &std::free),
        registration_(device.register_host({data_.get(), size_.count()})) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_.get(), size_.count()}; }

 private:
  Bytes size_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
  HostRegistration registration_;
};

}  // namespace spillway::testing
