#include "doctor/speed_checks.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "devices/link_test.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/memory/host_system.hpp"
#include "spillway/memory/slab.hpp"
#include "util/text/spread.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {
namespace {

using namespace spillway::literals;  // NOLINT(google-build-using-namespace)

/// GB/s of each round: by direct copies, and by the engine.
struct LinkSpeeds {
  std::vector<double> direct;
  std::vector<double> engine;
};

struct LinkFindings {
  Bytes block;
  Bytes total;
  LinkSpeeds out;
  LinkSpeeds back;
  LinkSpeeds both;
};

bool on_host(const Device& device) { return device.name() == "host"; }

/// What was asked for, or less where memory is short: the test takes four times its area.
Bytes fitting_area(Bytes wanted) {
  const Bytes most(available_host_memory().count() / 8 / kHugePage.count() * kHugePage.count());
  if (most == 0_B) {
    throw OutOfMemory("link test", "less than 16 MiB of host memory is free; close other programs");
  }
  return std::min(wanted, most);
}

LinkFindings measure_link(Device& device, const SpeedOptions& options) {
  constexpr std::uint64_t kAllBlocks = std::numeric_limits<std::uint64_t>::max();
  const Bytes area = fitting_area(options.size.value_or(options.quick ? 64_MiB : 256_MiB));
  const int repeats = options.quick ? 3 : 7;
  LinkTest test(device, area);
  const LinkRound round = make_round(area, std::min(area, 16_MiB), kAllBlocks, 0);
  LinkFindings found;
  found.block = round.block;
  found.total = round.total();
  const auto add = [&round](std::vector<double>& speeds, Nanoseconds time) {
    speeds.push_back(gigabytes_per_second(round.total(), time));
  };
  (void)test.bare(round);  // Warm-up.
  (void)test.engine(round);
  for (int i = 0; i < repeats; ++i) {
    const LinkTimes direct = test.bare(round);
    const LinkTimes engine = test.engine(round);
    add(found.out.direct, direct.out);
    add(found.back.direct, direct.back);
    add(found.both.direct, direct.both);
    add(found.out.engine, engine.out);
    add(found.back.engine, engine.back);
    add(found.both.engine, engine.both);
  }
  return found;
}

Json values_of(const Spread& spread) {
  return {{"median", spread.median},
          {"min", spread.min},
          {"max", spread.max},
          {"samples", spread.samples}};
}

void describe(const LinkFindings& found, const LinkSpeeds& speeds, Check& check) {
  const Spread direct = spread_of(speeds.direct);
  const Spread engine = spread_of(speeds.engine);
  check.found = "engine " + with_decimals(engine.median, 1) + " GB/s, direct copies " +
                with_decimals(direct.median, 1) + " GB/s (median of " +
                std::to_string(direct.samples) + ", engine " + with_decimals(engine.min, 1) + ".." +
                with_decimals(engine.max, 1) + ")";
  check.values = {{"engine_gb_per_s", values_of(engine)},
                  {"direct_gb_per_s", values_of(direct)},
                  {"copy_bytes", found.block.count()},
                  {"total_bytes", found.total.count()}};
}

void judge_link(const Device& device, const LinkFindings& found, std::vector<Check>& checks) {
  constexpr double kSlowLink = 10;  // A GPU on 16 lanes of PCIe 3 does 12 GB/s.
  const double out = spread_of(found.out.engine).median;
  const double both = spread_of(found.both.engine).median;
  if (on_host(device)) {
    checks.back().works =
        "The engine moves bytes both ways at once, and they arrive unchanged; the speeds are those "
        "of memcpy on this machine's threads, not of a link to a GPU.";
    return;
  }
  checks.back().works = "About " + with_decimals(out / 10, 1) +
                        " GB can leave the GPU behind each 100 ms of compute, and " +
                        with_decimals(both / 10, 1) +
                        " GB each way if as much comes back meanwhile.";
  if (out < kSlowLink) {
    checks.front().state = CheckState::kNote;
    checks.front().change =
        "The link is slow for a GPU: check its PCIe width and generation (nvidia-smi -q -d PCIE) "
        "and "
        "that this process runs on the GPU's NUMA node.";
  }
}

std::vector<Check> check_link(Device& device, const SpeedOptions& options) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"link_out", "link, to host"},
      {"link_back", "link, to device"},
      {"link_both", "link, both at once (each way)"}};
  std::vector<Check> checks;
  try {
    const LinkFindings found = measure_link(device, options);
    const std::vector<const LinkSpeeds*> speeds = {&found.out, &found.back, &found.both};
    for (std::size_t i = 0; i < names.size(); ++i) {
      checks.push_back(guarded(names[i].first, names[i].second,
                               [&](Check& check) { describe(found, *speeds[i], check); }));
    }
    judge_link(device, found, checks);
  } catch (const std::exception&) {
    checks.clear();
    const std::exception_ptr failure = std::current_exception();
    for (const auto& [id, label] : names) {
      checks.push_back(guarded(id, label, [&](Check&) { std::rethrow_exception(failure); }));
      if (checks.size() > 1) checks.back().change.clear();  // One cause, one sentence.
    }
  }
  return checks;
}

void check_pinning(Device& device, const SpeedOptions& options, Check& check) {
  constexpr double kSlow = 0.5;  // Seconds a GiB.
  const Bytes size = std::min(fitting_area(1_GiB), options.quick ? 256_MiB : 1_GiB);
  const SteadyClock clock;
  const Nanoseconds begin = clock.now();
  Slab slab(device, {.capacity = size, .prepare = size});
  const double caller_ms = static_cast<double>((clock.now() - begin).count()) / 1e6;
  slab.wait_until_prepared();
  const SlabUsage usage = slab.usage();
  const double seconds = static_cast<double>(usage.pinning_time.count()) / 1e9;
  const double per_gib =
      seconds * static_cast<double>((1_GiB).count()) / static_cast<double>(usage.pinned.count());
  check.found = with_decimals(per_gib, 3) + " s per GiB in the background (" +
                to_string(usage.pinned) + " touched" + (on_host(device) ? "" : " and pinned") +
                "); the call returned after " + with_decimals(caller_ms, 2) + " ms";
  check.values = {{"seconds_per_gib", per_gib},
                  {"pinned_bytes", usage.pinned.count()},
                  {"caller_ms", caller_ms}};
  check.works = "10 GiB of host memory are pinned after about " + with_decimals(per_gib * 10, 1) +
                " s, in the background.";
  if (per_gib > kSlow) {
    check.state = CheckState::kNote;
    check.change =
        "Pinning host memory is slow: huge pages and more free CPU cores make it faster.";
  }
}

}  // namespace

std::vector<Check> check_speed(Device& device, const SpeedOptions& options) {
  std::vector<Check> checks = check_link(device, options);
  checks.push_back(
      guarded("pinning", "pinning", [&](Check& check) { check_pinning(device, options, check); }));
  return checks;
}

}  // namespace spillway::app
