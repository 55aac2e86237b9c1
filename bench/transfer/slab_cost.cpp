#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "measures.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/event_pool.hpp"
#include "spillway/core/host_device.hpp"
#include "spillway/memory/host_system.hpp"
#include "spillway/memory/slab.hpp"

namespace spillway::bench {
namespace {

constexpr std::size_t kLive = 500;
constexpr std::size_t kBatch = 50;  // Reading the clock takes 20 to 30 ns, so once for many pairs.
constexpr std::size_t kEvents = 64;
constexpr Bytes kSmallest{4ULL << 10U};
constexpr double kWantedSlabMicroseconds = 0.3;

/// Frees one block and allocates another.
struct Swap {
  std::size_t slot = 0;
  Bytes size;
};

/// The same trace in every run. Sizes are log-uniform: as many between 4 and 8 KiB as between 32
/// and 64 MiB.
std::vector<Swap> make_trace(std::size_t count, Bytes largest) {
  std::mt19937_64 random(20240607);
  std::uniform_real_distribution<double> exponent(std::log2(static_cast<double>(kSmallest.count())),
                                                  std::log2(static_cast<double>(largest.count())));
  std::vector<Swap> trace;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t slot = i < kLive ? i : random() % kLive;
    trace.push_back({slot, Bytes(static_cast<std::uint64_t>(std::exp2(exponent(random))))});
  }
  return trace;
}

/// Runs a trace on a slab that keeps kLive blocks.
class SlabTrace {
 public:
  explicit SlabTrace(Bytes capacity)
      : streams_{device_.make_stream("a"), device_.make_stream("b")},
        pool_(device_, Timing::kOff),
        slab_(device_, {.capacity = capacity}),
        leases_(kLive) {
    for (std::size_t i = 0; i < kEvents; ++i) {
      events_.push_back(pool_.take());
      streams_[i % streams_.size()]->record(*events_.back());
    }
    device_.synchronize();
  }

  void run(std::span<const Swap> swaps) {
    for (const Swap& swap : swaps) {
      Lease& lease = leases_[swap.slot];
      if (lease) lease.retire(events_[next_event_++ % kEvents]);
      std::optional<Lease> taken = slab_.allocate(swap.size);
      if (!taken) throw OutOfMemory("slab cost", "the trace does not fit; free host memory");
      lease = std::move(*taken);
    }
  }

  [[nodiscard]] SlabUsage usage() const { return slab_.usage(); }

 private:
  HostDevice device_;
  std::array<std::unique_ptr<Stream>, 2> streams_;
  EventPool pool_;
  EventList events_;
  Slab slab_;
  std::vector<Lease> leases_;
  std::size_t next_event_ = 0;
};

/// Twice the average of the live bytes; only used memory is ever pinned.
Bytes capacity_for(Bytes largest) {
  const auto low = static_cast<double>(kSmallest.count());
  const auto high = static_cast<double>(largest.count());
  const double mean = (high - low) / std::log(high / low);
  return Bytes(static_cast<std::uint64_t>(2 * kLive * mean));
}

/// 64 MiB, or less if the live blocks would take more than a quarter of the free memory.
Bytes largest_block(bool quick) {
  Bytes largest = quick ? Bytes(1ULL << 20U) : Bytes(64ULL << 20U);
  const Bytes free(available_host_memory().count() / 2);
  while (capacity_for(largest) > free) largest = Bytes(largest.count() / 2);
  return largest;
}

}  // namespace

std::vector<Figure> measure_slab_cost(const Settings& settings) {
  const Bytes largest = largest_block(settings.quick);
  const std::vector<Swap> trace = make_trace(settings.quick ? 5'000 : 50'000, largest);
  SlabTrace slab(capacity_for(largest));
  // Twice, because the second run begins with blocks of the first: pins all memory that is used.
  slab.run(trace);
  slab.run({trace.data() + kLive, trace.size() - kLive});
  const std::uint64_t waits = slab.usage().warm_up_waits;
  std::vector<double> samples;
  const SteadyClock clock;
  for (std::size_t at = kLive; at + kBatch <= trace.size(); at += kBatch) {
    const Nanoseconds begin = clock.now();
    slab.run({trace.data() + at, kBatch});
    const Nanoseconds time = clock.now() - begin;
    samples.push_back(static_cast<double>(time.count()) / 1e3 / kBatch);
  }
  if (slab.usage().warm_up_waits != waits) {
    throw Error("slab cost", "memory of the slab was still being pinned while it was timed");
  }
  Figure figure;
  figure.id = "slab_cost.pair";
  figure.found = {"slab allocate + free, 4 KiB to " + to_string(largest) + ", " +
                      std::to_string(kLive) + " live",
                  "us", 3, app::spread_of(samples)};
  figure.wanted = Wanted{Wanted::Kind::kAtMost, kWantedSlabMicroseconds, settings.judge_device};
  figure.beside.push_back(
      {"free parts", "", 0, app::exactly(static_cast<double>(slab.usage().holes))});
  return {figure};
}

}  // namespace spillway::bench
