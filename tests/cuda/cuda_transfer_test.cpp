#include <algorithm>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/transfer_programs.hpp"
#include "spillway/cuda/cuda_device.hpp"
#include "support/counting_device.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::FaultOptions;
using testing::ProgramWorld;
using testing::scaled_programs;

class CudaTransfer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

FaultOptions faults_for(std::uint64_t seed) {
  return {.seed = seed,
          .hold_back = 0.25 * static_cast<double>(seed % 5),
          .pause = seed % 7 == 0 ? 0.05 : 0.0};
}

TEST_F(CudaTransfer, RandomProgramsMoveEveryByteRight) {
  CudaDevice device(0);
  ProgramWorld world(device, 1, Timing::kOff);
  const std::uint64_t count = scaled_programs(2'000);
  for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    world.set_faults(faults_for(seed));
    world.run(0, seed);
  }
  world.expect_empty();
}

TEST_F(CudaTransfer, RandomProgramsOnThreadsThatShareAnEngine) {
  CudaDevice device(0);
  ProgramWorld world(device, 2, Timing::kOff);
  const std::uint64_t count = scaled_programs(500);
  const auto work = [&world, count](int worker) {
    for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
      if (worker == 0 && seed % 16 == 0) world.set_faults(faults_for(seed / 16));
      world.run(worker, 1'000'000 * static_cast<std::uint64_t>(worker + 1) + seed);
    }
  };
  {
    const std::jthread first(work, 0);
    const std::jthread second(work, 1);
  }
  world.expect_empty();
}

TEST_F(CudaTransfer, RandomProgramsAreTimed) {
  CudaDevice device(0);
  ProgramWorld world(device, 1, Timing::kOn);
  const std::uint64_t count = scaled_programs(200);
  for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    world.set_faults(faults_for(seed));
    world.run(0, seed);
    for (const TransferRecord& record : world.engine().drain_records()) {
      EXPECT_GE(record.out.done, record.out.started);
      if (record.back) {
        EXPECT_GE(record.back->done, record.back->started);
      }
    }
  }
}

TEST_F(CudaTransfer, OnceWarmItNeverSynchronisesPollsOrMakesAnything) {
  CudaDevice cuda(0);
  testing::CountingDevice device(cuda);
  Slab slab(device, {.capacity = 64_MiB, .chunk = 32_MiB, .prepare = 64_MiB});
  HostTier tier(slab);
  TransferEngine engine(device, tier);
  const auto compute = device.make_stream("compute");
  const DeviceBuffer buffer = device.allocate(1_MiB);
  slab.wait_until_prepared();
  const auto step = [&] {
    std::vector<Ticket> tickets;
    for (int i = 0; i < 40; ++i) {
      tickets.push_back(*engine.offload(buffer.span(), *compute));
      engine.release(tickets.back(), *compute);
    }
    for (; !tickets.empty(); tickets.pop_back()) {
      engine.reload(tickets.back(), buffer.span(), *compute);
      engine.ready(tickets.back(), *compute);
    }
  };
  for (int i = 0; i < 3; ++i) step();
  const testing::DeviceCalls& calls = device.calls();
  const std::uint64_t events = calls.events;
  const std::uint64_t registrations = calls.registrations;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(calls.queries, 0U);
  EXPECT_EQ(calls.synchronizes, 0U);
  EXPECT_EQ(calls.events, events);
  EXPECT_EQ(calls.registrations, registrations);
  compute->synchronize();
}

}  // namespace
}  // namespace spillway
