#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "conformance/transfer_programs.hpp"
#include "spillway/core/host_device.hpp"

namespace spillway {
namespace {

using testing::Fault;
using testing::FaultOptions;
using testing::ProgramWorld;
using testing::scaled_programs;

FaultOptions faults_for(std::uint64_t seed) {
  // From "everything at once" to "nothing until somebody waits".
  const double hold_back = 0.25 * static_cast<double>(seed % 5);
  return {.seed = seed, .hold_back = hold_back, .pause = seed % 7 == 0 ? 0.05 : 0.0};
}

TEST(RandomPrograms, MoveEveryByteRight) {
  HostDevice host;
  for (const Bytes group : {Bytes(0), Bytes(7000), Bytes(1 << 20)}) {
    ProgramWorld world(host, 1, Timing::kOff, group);
    const std::uint64_t count = scaled_programs(6'000);
    for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
      world.set_faults(faults_for(seed));
      world.run(0, seed);
    }
    world.expect_empty();
  }
}

TEST(RandomPrograms, MoveEveryByteRightOnThreadsThatShareAnEngine) {
  HostDevice host;
  ProgramWorld world(host, 2, Timing::kOff);
  const std::uint64_t count = scaled_programs(2'000);
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

TEST(RandomPrograms, MoveEveryByteRightWhileCopiesAreRefused) {
  HostDevice host;
  ProgramWorld world(host, 1, Timing::kOff);
  const std::uint64_t count = scaled_programs(2'000);
  for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    FaultOptions faults = faults_for(seed);
    faults.fault = [seed](std::uint64_t copy) {
      return std::mt19937_64(seed * 1000 + copy)() % 4 == 0 ? Fault::kRefuse : Fault::kNone;
    };
    world.set_faults(std::move(faults));
    world.run(0, seed);
  }
  world.expect_empty();
}

TEST(RandomPrograms, GiveRightBytesOrTheErrorWhenACopyFailsOnTheWay) {
  HostDevice host;
  const std::uint64_t count = scaled_programs(200);
  std::uint64_t failed = 0;
  for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    ProgramWorld world(host, 1, Timing::kOff);  // A failed engine stays failed.
    FaultOptions faults = faults_for(seed);
    faults.fault = [seed](std::uint64_t copy) {
      return copy == seed % 20 ? Fault::kFailLater : Fault::kNone;
    };
    world.set_faults(std::move(faults));
    failed += world.run(0, seed, true) ? 1 : 0;
    world.expect_empty();
  }
  EXPECT_GT(failed, count / 4);
}

TEST(RandomPrograms, AreTimedWithoutBeingDisturbed) {
  HostDevice host;
  ProgramWorld world(host, 1, Timing::kOn);
  const std::uint64_t count = scaled_programs(1'000);
  for (std::uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    world.set_faults(faults_for(seed));
    world.run(0, seed);
    for (const TransferRecord& record : world.engine().drain_records()) {
      EXPECT_GE(record.out.done, record.out.started);
      EXPECT_GE(record.out.wait, Nanoseconds(0));
      if (record.back) {
        EXPECT_GE(record.back->started, record.out.done);
        EXPECT_GE(record.back->done, record.back->started);
      }
    }
  }
  world.expect_empty();
}

}  // namespace
}  // namespace spillway
