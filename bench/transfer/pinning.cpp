#include <algorithm>
#include <string>

#include "measures.hpp"
#include "spillway/memory/host_system.hpp"
#include "spillway/memory/slab.hpp"

namespace spillway::bench {
namespace {

constexpr double kWantedSecondsPerGib = 0.1;
constexpr double kWantedCallerShare = 1;
constexpr Bytes kGib{1ULL << 30U};

}  // namespace

std::vector<Figure> measure_pinning(Device& device, const Settings& settings) {
  const Bytes wanted = settings.quick ? Bytes(256ULL << 20U) : kGib * 4;
  const Bytes size =
      std::min(wanted, round_up(Bytes(available_host_memory().count() / 4), kHugePage));
  std::vector<double> per_gib;
  std::vector<double> caller_ms;
  std::vector<double> share;
  for (int i = 0; i < settings.repeats; ++i) {
    const SteadyClock clock;
    const Nanoseconds begin = clock.now();
    Slab slab(device, {.capacity = size, .prepare = size});
    const auto caller = static_cast<double>((clock.now() - begin).count());
    slab.wait_until_prepared();
    const SlabUsage usage = slab.usage();
    const auto pinning = static_cast<double>(usage.pinning_time.count());
    per_gib.push_back(pinning / 1e9 * static_cast<double>(kGib.count()) /
                      static_cast<double>(usage.pinned.count()));
    caller_ms.push_back(caller / 1e6);
    share.push_back(100 * caller / pinning);
  }
  Figure speed;
  speed.id = "pinning.seconds_per_gib";
  speed.found = {"pinning host memory (touch + register)", "s/GiB", 3, app::spread_of(per_gib)};
  speed.wanted = Wanted{Wanted::Kind::kAtMost, kWantedSecondsPerGib, settings.judge_device};
  speed.beside = {
      {"of", "GiB", 2,
       app::exactly(static_cast<double>(size.count()) / static_cast<double>(kGib.count()))}};
  Figure caller;
  caller.id = "pinning.caller_share";
  caller.found = {"share of that time the caller waits", "%", 2, app::spread_of(share)};
  caller.wanted = Wanted{Wanted::Kind::kAtMost, kWantedCallerShare, settings.judge_device};
  caller.beside = {{"constructor + prepare", "ms", 2, app::spread_of(caller_ms)}};
  return {speed, caller};
}

}  // namespace spillway::bench
