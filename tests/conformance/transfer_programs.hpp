/// Random programs of offload, release, reload, ready and cancel over several streams, on a device
/// with every delay and order that the contract permits, with every byte checked. A program is a
/// function of its seed.
///
/// What makes a race visible: a part of device memory is overwritten, on the stream that owns it,
/// in the very moment the engine's contract says that it may be.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/memory/counting_tier.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/engine.hpp"
#include "support/faulty_device.hpp"
#include "support/registered_memory.hpp"

namespace spillway::testing {

/// One engine with its streams and memory, for many programs.
class ProgramWorld {
 public:
  /// `workers` programs may run at once, each on a thread, streams and memory of its own.
  /// `group` is EngineOptions::group; the default makes groups of a few of the programs' buffers.
  ProgramWorld(Device& inner, int workers, Timing timing, Bytes group = Bytes(7000));
  ~ProgramWorld();

  void set_faults(FaultOptions options) { device_.set(std::move(options)); }

  /// Runs one program as `worker` to its end and checks it with EXPECTs. `may_fail`: an error at
  /// the end is an answer too, and then nothing more is checked. Returns whether there was one.
  bool run(int worker, std::uint64_t seed, bool may_fail = false);

  /// Checks that tier and slab have no leases. Call when no program runs.
  void expect_empty();

  [[nodiscard]] TransferEngine& engine() { return engine_; }

 private:
  struct Worker;

  FaultyDevice device_;
  Slab slab_;
  HostTier host_tier_;
  Lease filler_;  // Leaves a small part of the slab, with the seam of two chunks in its middle.
  CountingTier tier_;
  TransferEngine engine_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// As many as cases_of(count); with the environment variable SPILLWAY_TEST_PROGRAMS so many times
/// `count`.
[[nodiscard]] std::uint64_t scaled_programs(std::uint64_t count);

}  // namespace spillway::testing
