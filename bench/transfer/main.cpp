/// Question: what does the transfer engine cost, compared with what the machine can do at best?
///
/// How to read it. Each line is a figure with its limit on an H200, the measured median, the spread
/// over all repeats, and values to compare it with:
///   engine / bare copies  throughput of the engine as a share of bare async copies of pinned
///                         memory, back to back on one stream a direction. 100 % is the optimum.
///                         "out" and "back" are one direction alone; "both at once" counts one
///                         direction of two.
///   host cost             time of the calling thread for one buffer: offload, release, reload,
///                         ready and ticket destruction. "As in a step" has the order of a step, in
///                         which small copies are batched; "one at a time" allows no batches. The
///                         bare calls are two copies, four event records and four stream waits.
///   slab allocate + free  one pair on a slab with many live blocks, events attached.
///   footprint             address range used / bytes live at the peak: 1.00 is no fragmentation.
///   pinning               touching and registering host memory, on the slab's own thread; and how
///                         long the caller is blocked, which must be negligible.
/// Both sides of a comparison run in turns in one process, over the same memory. A missed limit is
/// printed as MISSED and does not change the exit code; a wrong byte ends the run with an error.

#include <CLI/CLI.hpp>

#include "devices/devices.hpp"
#include "measures.hpp"
#include "spillway/core/error.hpp"
#include "spillway/memory/host_system.hpp"
#include "support/program.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;  // NOLINT(google-build-using-namespace)

constexpr const char* kQuestion =
    "What does the transfer engine cost, compared with what the machine can do at best?";

struct Options {
  bool quick = false;
  app::DeviceChoice device;
  std::vector<Bytes> sizes;
  std::optional<Bytes> area;
  int repeats = 0;
  std::vector<std::string> only;
};

const std::vector<std::string> kMeasures = {"throughput", "host-cost", "slab-cost", "footprint",
                                            "pinning"};

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--quick", options.quick, "Small sizes and few repeats: seconds, not judged");
  app.add_option_function<std::string>(
         "--device",
         [&options](const std::string& text) { options.device = app::parse_device(text); },
         "host, cuda or cuda:N (default: the first GPU, else host)")
      ->type_name("DEVICE");
  app.add_option_function<std::vector<std::string>>(
         "--sizes",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) options.sizes.push_back(parse_bytes(text));
         },
         "Sizes of one copy, such as 64KiB,1MiB,256MiB")
      ->delimiter(',')
      ->type_name("SIZE,...");
  app.add_option_function<std::string>(
         "--area", [&options](const std::string& text) { options.area = parse_bytes(text); },
         "Memory that copies walk over; taken twice on the device and twice on the host")
      ->type_name("SIZE");
  app.add_option("--repeats", options.repeats, "Measurements of each figure after one warm-up")
      ->check(CLI::PositiveNumber);
  app.add_option("--only", options.only,
                 "Some of: throughput host-cost slab-cost footprint pinning")
      ->delimiter(',')
      ->check(CLI::IsMember(kMeasures));
  app.footer(
      "\nExample: bench_transfer --out bench/results/json/transfer-h200.json"
      " --markdown bench/results/transfer-h200.md\n");
}

/// As given by --area, or a size that takes reasonable time on the device, at most a sixteenth of
/// the free memory.
Bytes area_of(const Options& options, const Device& device) {
  if (options.area) return *options.area;
  const bool host = device.name() == "host";
  const Bytes wanted = options.quick ? 32_MiB : (host ? 512_MiB : 4_GiB);
  return std::min(wanted, round_up(Bytes(available_host_memory().count() / 16), 2_MiB));
}

std::vector<Bytes> sizes_of(const Options& options, Bytes area) {
  if (!options.sizes.empty()) return options.sizes;
  if (options.quick) return {256_KiB, 1_MiB, 4_MiB};
  std::vector<Bytes> sizes = {64_KiB, 256_KiB, 1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB};
  std::erase_if(sizes, [area](Bytes size) { return size * 2 > area; });
  return sizes;
}

Settings settings_of(const Options& options, const Device& device) {
  Settings settings;
  settings.quick = options.quick;
  settings.area = area_of(options, device);
  settings.sizes = sizes_of(options, settings.area);
  settings.repeats = options.repeats > 0 ? options.repeats : (options.quick ? 3 : 7);
  settings.judge_device = device.name() != "host" && !options.quick;
  return settings;
}

std::vector<Figure> measure(const std::string& name, Device& device, const Settings& settings) {
  if (name == "throughput") return measure_throughput(device, settings);
  if (name == "host-cost") return measure_host_cost(device, settings);
  if (name == "slab-cost") return measure_slab_cost(settings);
  if (name == "footprint") return measure_footprint(settings);
  return measure_pinning(device, settings);
}

void measure_all(const Options& options, Device& device, Report& report) {
  const Settings settings = settings_of(options, device);
  report.settings = {{"quick", settings.quick},
                     {"area_bytes", settings.area.count()},
                     {"repeats", settings.repeats}};
  for (const Bytes size : settings.sizes) report.settings["sizes"].push_back(size.count());
  const std::vector<std::string>& names = options.only.empty() ? kMeasures : options.only;
  for (const std::string& name : names) {
    std::cerr << "measuring " << name << " ...\n";
    for (Figure& figure : measure(name, device, settings)) {
      report.figures.push_back(std::move(figure));
    }
  }
  if (!settings.judge_device) {
    report.notes.emplace_back("Not judged: limits are for a full run on a GPU.");
  }
  if (std::find(names.begin(), names.end(), "throughput") != names.end()) {
    report.notes.emplace_back(
        "A sample of the blocks of every round was compared byte by byte: all equal.");
  }
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  bench::Options options;
  bench::Program program;
  program.bench = "transfer";
  program.question = bench::kQuestion;
  program.add_options = [&](CLI::App& app) { bench::add_options(app, options); };
  program.open_device = [&] { return spillway::app::open_device(options.device); };
  program.measure = [&](spillway::Device& device, bench::Report& report) {
    bench::measure_all(options, device, report);
  };
  return bench::run_program(program, argc, argv);
}
