#include "spillway/core/device.hpp"

#include "spillway/core/error.hpp"

namespace spillway {

DeviceBuffer::~DeviceBuffer() {
  if (device_ != nullptr) device_->do_deallocate(data_);
}

HostRegistration::~HostRegistration() {
  if (device_ != nullptr) device_->do_unregister(data_);
}

DeviceBuffer Device::allocate(Bytes size) {
  if (size == Bytes(0)) {
    throw InvalidArgument(
        "allocate", "a buffer of 0 bytes was asked for on " + name() + "; ask for at least 1");
  }
  return {*this, do_allocate(size), size};
}

HostRegistration Device::register_host(std::span<std::byte> memory) {
  do_register(memory);
  return {*this, memory.data()};
}

}  // namespace spillway
