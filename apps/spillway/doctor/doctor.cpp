#include "doctor/doctor.hpp"

#include <iostream>
#include <memory>
#include <string>

#include "devices/devices.hpp"
#include "doctor/doctor_report.hpp"
#include "doctor/machine_checks.hpp"
#include "doctor/speed_checks.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/host_device.hpp"

namespace spillway::app {
namespace {

constexpr Bytes kSmallest{1ULL << 20U};

struct DoctorOptions {
  bool json = false;
  bool quick = false;
  DeviceChoice device;
  std::optional<Bytes> size;
};

constexpr const char* kDoctorExamples =
    "\nExamples:\n"
    "  spillway doctor                    the whole report, a few seconds\n"
    "  spillway doctor --quick            smaller copies, for a first look\n"
    "  spillway doctor --json | jq .change\n"
    "  spillway doctor --device host      measure worker threads and memcpy instead of a GPU\n"
    "\nEach line is a check: \"ok\", \"note\" (works, could be better) or \"problem\". A check "
    "that\n"
    "cannot be made says so in its line; the exit code is 0 whenever a report was printed.\n";

Bytes read_size(const std::string& text) {
  const Bytes size = parse_bytes(text);
  if (size < kSmallest) {
    throw InvalidArgument("doctor", "--size " + text +
                                        " is too small to measure a link; give at "
                                        "least 1 MiB, such as \"256 MiB\"");
  }
  return size;
}

/// A GPU that cannot be opened is a finding, unless it was asked for by name.
std::unique_ptr<Device> open_for_doctor(DeviceChoice choice, GpuSystem& gpus) {
  try {
    return open_device(choice);
  } catch (const Error& error) {
    if (choice.kind != DeviceChoice::Kind::kBest) throw;
    gpus.problem = error.what();
    return std::make_unique<HostDevice>();
  }
}

int run_doctor(const DoctorOptions& options) {
  GpuSystem gpus = gpu_system();
  const std::unique_ptr<Device> device = open_for_doctor(options.device, gpus);
  DoctorReport report;
  report.version = SPILLWAY_VERSION;
  report.device = device->name();
  report.checks = check_machine(*device, gpus);
  for (Check& check : check_speed(*device, {options.size, options.quick})) {
    report.checks.push_back(std::move(check));
  }
  if (options.json) {
    std::cout << to_json(report).dump(2) << '\n';
  } else {
    std::cout << to_text(report);
  }
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Look at this machine: what works, what to change, how fast the link is");
  auto options = std::make_shared<DoctorOptions>();
  command->add_flag("--json", options->json, "Print the report as JSON");
  command->add_flag("--quick", options->quick, "Smaller and fewer copies");
  command
      ->add_option_function<std::string>(
          "--device", [options](const std::string& text) { options->device = parse_device(text); },
          "Which device: host, cuda, cuda:N or N (default: the first GPU, else host)")
      ->type_name("DEVICE");
  command
      ->add_option_function<std::string>(
          "--size", [options](const std::string& text) { options->size = read_size(text); },
          "Bytes to move for each measurement (default: 256 MiB; 64 MiB with --quick)")
      ->type_name("SIZE");
  command->footer(kDoctorExamples);
  command->callback([options, &action] { action = [options] { return run_doctor(*options); }; });
}

}  // namespace spillway::app
