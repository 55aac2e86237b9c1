#include "devices/devices.hpp"

#include <charconv>

#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"

namespace spillway::app {

DeviceChoice parse_device(std::string_view text) {
  using Kind = DeviceChoice::Kind;
  if (text == "best") return {Kind::kBest, 0};
  if (text == "host") return {Kind::kHost, 0};
  if (text == "cuda") return {Kind::kGpu, 0};
  std::string_view digits = text;
  if (digits.starts_with("cuda:")) digits.remove_prefix(5);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || index < 0) {
    throw InvalidArgument("device", "cannot read \"" + std::string(text) +
                                        "\" as a device; write \"host\", \"cuda\", \"cuda:1\" or "
                                        "the number of a GPU");
  }
  return {Kind::kGpu, index};
}

std::unique_ptr<Device> open_device(DeviceChoice choice) {
  switch (choice.kind) {
    case DeviceChoice::Kind::kGpu:
      return open_gpu(choice.index);
    case DeviceChoice::Kind::kBest:
      if (!gpu_system().gpus.empty()) return open_gpu(0);
      break;
    case DeviceChoice::Kind::kHost:
      break;
  }
  return std::make_unique<HostDevice>();
}

}  // namespace spillway::app
