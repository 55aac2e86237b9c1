#include "device.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spillway/core/error.hpp"

namespace spillway::testing {
namespace {

at::Tensor bytes_on(at::Device device, void* memory, std::size_t bytes) {
  return at::from_blob(memory, {static_cast<std::int64_t>(bytes)},
                       at::TensorOptions(device).dtype(at::kByte));
}

void copy(at::Device to_device, void* to, at::Device from_device, const void* from,
          std::size_t bytes) {
  if (bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView unseen;
  bytes_on(to_device, to, bytes).copy_(bytes_on(from_device, const_cast<void*>(from), bytes));
}

/// About a millisecond.
void be_slow() {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  // Never freed: CUDA has ended when statics are.
  static at::Tensor& numbers =
      *new at::Tensor(at::zeros({32 << 20}, at::TensorOptions(device()).dtype(at::kFloat)));
  for (int i = 0; i < 16; ++i) numbers.add_(1);
}

}  // namespace

at::Device device() {
  static const at::Device kDevice = [] {
    const char* const text = std::getenv("SPILLWAY_TEST_DEVICE");
    const std::string_view name = text != nullptr ? text : "cpu";
    if (name == "cpu") return at::Device(at::kCPU);
    if (name == "cuda") return at::Device(at::kCUDA, 0);
    throw InvalidArgument(
        "stress", "SPILLWAY_TEST_DEVICE is \"" + std::string(name) + "\"; known are: cpu, cuda");
  }();
  return kDevice;
}

bool on_cuda() { return device().is_cuda(); }
bool device_is_missing() { return on_cuda() && !at::hasCUDA(); }

at::TensorOptions integers() { return at::TensorOptions(device()).dtype(at::kLong); }
at::TensorOptions booleans() { return at::TensorOptions(device()).dtype(at::kBool); }

at::Generator new_generator(std::uint64_t seed) {
  at::Generator generator =
      on_cuda() ? at::detail::getCUDAHooks().getNewGenerator(0) : at::detail::createCPUGenerator();
  generator.set_current_seed(seed);
  return generator;
}

void copy_to_host(void* to, const void* from, std::size_t bytes) {
  copy(at::kCPU, to, device(), from, bytes);
}

void copy_from_host(void* to, const void* from, std::size_t bytes) {
  copy(device(), to, at::kCPU, from, bytes);
}

void fill(void* memory, std::uint8_t value, std::size_t bytes) {
  if (!on_cuda()) {
    std::memset(memory, value, bytes);
  } else if (bytes != 0) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    bytes_on(device(), memory, bytes).fill_(value);
  }
}

at::Tensor on_another_stream(bool slow, const std::vector<at::Tensor>& read,
                             const std::function<at::Tensor()>& work) {
  if (!on_cuda()) return work();
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  static const c10::Stream other = streams.getStreamFromGlobalPool(device(), false);
  const c10::Stream current = streams.getStream(device());
  if (current == other) return work();
  const auto order = [](const c10::Stream& first, const c10::Stream& second) {
    c10::Event event(at::kCUDA);
    event.record(first);
    event.block(second);
  };
  order(current, other);
  at::Tensor result;
  {
    const c10::StreamGuard guard(other);
    if (slow) be_slow();
    result = work();
  }
  order(other, current);
  for (const at::Tensor& each : read) each.record_stream(other);
  result.record_stream(current);
  return result;
}

}  // namespace spillway::testing
