#include "support/provenance.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include <sys/utsname.h>

#include "devices/devices.hpp"
#include "spillway/memory/host_system.hpp"

namespace spillway::bench {
namespace {

constexpr const char* kUnknown = "unknown";

/// The output of a command; empty if it fails.
std::string output_of(const char* command) {
  std::FILE* pipe = ::popen(command, "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  return ::pclose(pipe) == 0 ? text : std::string();
}

std::string commit_here() {
  std::string commit = output_of("git rev-parse --short=12 HEAD 2>/dev/null");
  if (commit.empty()) return kUnknown;
  commit.erase(commit.find_last_not_of('\n') + 1);
  const bool changed = !output_of("git status --porcelain 2>/dev/null").empty();
  return changed ? commit + "+changes" : commit;
}

std::string date_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string command_of(int argc, const char* const* argv) {
  const std::string program = argv[0];
  std::string text = program.substr(program.rfind('/') + 1);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    text += word.find(' ') == std::string::npos ? " " + word : " '" + word + "'";
  }
  return text;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return kUnknown;
}

std::string system_name() {
  utsname names{};
  if (::uname(&names) != 0) return kUnknown;
  return std::string(names.sysname) + " " + names.release;
}

}  // namespace

Provenance provenance_of(const Device& device, int argc, const char* const* argv,
                         std::string commit) {
  Provenance found;
  found.command = command_of(argc, argv);
  found.commit = commit.empty() ? commit_here() : std::move(commit);
  found.date = date_now();
  found.device = device.name();
  const app::GpuSystem gpus = app::gpu_system();
  for (const app::Gpu& gpu : gpus.gpus) {
    if (device.name() != "cuda:" + std::to_string(gpu.index)) continue;
    found.gpu = gpu.name;
    found.driver = (gpus.driver.empty() ? kUnknown : gpus.driver) + " (CUDA " + gpus.cuda +
                   ", runtime " + gpus.runtime + ")";
  }
  found.cpu = cpu_name();
  found.cores = std::thread::hardware_concurrency();
  found.memory = total_host_memory();
  found.system = system_name();
  return found;
}

Json to_json(const Provenance& from) {
  return {{"command", from.command},
          {"commit", from.commit},
          {"date", from.date},
          {"hardware",
           {{"device", from.device},
            {"gpu", from.gpu},
            {"driver", from.driver},
            {"cpu", from.cpu},
            {"cores", from.cores},
            {"memory_bytes", from.memory.count()},
            {"system", from.system}}}};
}

std::string hardware_text(const Provenance& from) {
  const std::string host =
      from.cpu + ", " + std::to_string(from.cores) + " cores, " + to_string(from.memory);
  return from.gpu.empty() ? "no GPU used; " + host
                          : from.gpu + ", driver " + from.driver + "; " + host;
}

}  // namespace spillway::bench
