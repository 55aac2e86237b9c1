/// One buffer is offloaded and reloaded. Runs anywhere: the host device's streams are worker
/// threads. On a GPU, make a spillway::CudaDevice (spillway/cuda/cuda_device.hpp) instead of the
/// HostDevice and link spillway::cuda; nothing else changes.

#include <algorithm>
#include <exception>
#include <iostream>
#include <optional>

#include "spillway/core/host_device.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/transfer/engine.hpp"

using namespace spillway::literals;

namespace {

int run() {
  spillway::HostDevice device;
  spillway::Slab slab(device, {.capacity = 256_MiB});  // Where offloaded buffers go.
  spillway::HostTier tier(slab);
  spillway::TransferEngine engine(device, tier);

  auto compute = device.make_stream("compute");
  auto activation = device.allocate(16_MiB);
  compute->fill(activation.data(), std::byte{42}, activation.size());  // Forward makes it,

  std::optional<spillway::Ticket> ticket = engine.offload(activation.span(), *compute);
  if (!ticket) return 1;              // no room in the tier: keep it
  engine.release(*ticket, *compute);  // and from here on `compute` may overwrite it.
  compute->fill(activation.data(), std::byte{0}, activation.size());

  auto again = device.allocate(16_MiB);
  engine.reload(*ticket, again.span(), *compute);  // Ahead of backward: starts the copy back.
  engine.ready(*ticket, *compute);                 // Backward reads it after this.
  compute->synchronize();

  const auto bytes = again.span();  // The host device's memory can be read here.
  const bool same =
      std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == std::byte{42}; });
  std::cout << "out and back: " << to_string(again.size())
            << (same ? ", equal\n" : ", DIFFERENT\n");
  return same ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
