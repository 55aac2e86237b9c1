/// Question: what do single calls cost the host? For finding regressions between two commits.
///
/// How to read it: Google Benchmark's table. Everything runs on the host device, so engine calls
/// include waking its worker threads. Compare a run with an earlier one, not with figures of a GPU
/// (bench/transfer).

#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "spillway/core/event_pool.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/offset_allocator.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/engine.hpp"

namespace {

using spillway::Bytes;
using namespace spillway::literals;  // NOLINT(google-build-using-namespace)

/// Frees one of `live` extents and allocates another of a random size.
void offset_allocator_swap(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  spillway::OffsetAllocator allocator(Bytes(1ULL << 42U));
  std::mt19937_64 random(1);
  std::vector<spillway::Extent> extents;
  for (std::size_t i = 0; i < live; ++i) {
    extents.push_back(allocator.allocate(Bytes(random() % (1ULL << 24U))).value());
  }
  for (auto _ : state) {
    spillway::Extent& extent = extents[random() % live];
    allocator.free(extent);
    extent = allocator.allocate(Bytes(random() % (1ULL << 24U))).value();
  }
  state.counters["holes"] = static_cast<double>(allocator.holes());
}
BENCHMARK(offset_allocator_swap)->Arg(50)->Arg(500)->Arg(5000);

/// Allocates and retires the same block with an event: the overhead of a slab over its allocator.
void slab_allocate_retire(benchmark::State& state) {
  spillway::HostDevice device;
  const auto stream = device.make_stream("reader");
  spillway::EventPool events(device, spillway::Timing::kOff);
  const spillway::EventRef event = events.take();
  stream->record(*event);
  spillway::Slab slab(device, {.capacity = 64_MiB, .prepare = 64_MiB});
  slab.wait_until_prepared();
  for (auto _ : state) slab.allocate(1_MiB)->retire(event);
}
BENCHMARK(slab_allocate_retire);

/// One cycle of the engine over three streams; 4 KiB, so that copies take no time.
void engine_cycle(benchmark::State& state) {
  spillway::HostDevice device;
  spillway::Slab slab(device, {.capacity = 64_MiB, .prepare = 64_MiB});
  slab.wait_until_prepared();
  spillway::HostTier tier(slab);
  spillway::TransferEngine engine(device, tier);
  const auto compute = device.make_stream("compute");
  const spillway::DeviceBuffer source = device.allocate(4_KiB);
  const spillway::DeviceBuffer destination = device.allocate(4_KiB);
  compute->fill(source.data(), std::byte{1}, source.size());
  std::uint64_t cycles = 0;
  for (auto _ : state) {
    spillway::Ticket ticket = engine.offload(source.span(), *compute).value();
    engine.release(ticket, *compute);
    engine.reload(ticket, destination.span(), *compute);
    engine.ready(ticket, *compute);
    if (++cycles % 100 == 0) {  // The queue must not grow without end.
      state.PauseTiming();
      device.synchronize();
      state.ResumeTiming();
    }
  }
  device.synchronize();
}
BENCHMARK(engine_cycle);

}  // namespace

BENCHMARK_MAIN();
