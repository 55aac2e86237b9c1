#include "spillway/memory/host_system.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string_view>

#include <dlfcn.h>
#include <sys/resource.h>

#include "spillway/core/numbers.hpp"

namespace spillway {
namespace {

constexpr Bytes kNoLimit{std::numeric_limits<std::uint64_t>::max()};

/// The number behind `key` in a file of "key number" lines, times `unit`.
std::optional<Bytes> read_field(const std::string& path, std::string_view key, std::uint64_t unit) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const bool found = line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ';
    const auto value = found ? whole_number(line.substr(key.size())) : std::nullopt;
    if (value && *value >= 0) return Bytes(static_cast<std::uint64_t>(*value) * unit);
  }
  return std::nullopt;
}

/// A file that holds one number; nothing for "max" and for files that are not there.
std::optional<Bytes> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::optional<std::int64_t> value = whole_number(line);
  if (!value || *value < 0) return std::nullopt;
  return Bytes(static_cast<std::uint64_t>(*value));
}

/// This process's control group (version 2), as a folder without a slash at its end.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) {
      const std::string path = line.substr(3);
      return "/sys/fs/cgroup" + (path == "/" ? "" : path);
    }
  }
  return {};
}

struct GroupMemory {
  Bytes limit = kNoLimit;
  Bytes available = kNoLimit;
};

GroupMemory group_memory() {
  GroupMemory memory;
  // Every group above limits this process too.
  for (std::string folder = control_group(); folder.size() >= std::string_view("/sys/fs").size();
       folder.resize(folder.rfind('/'))) {
    const std::optional<Bytes> limit = read_number(folder + "/memory.max");
    if (!limit) continue;
    const Bytes current = read_number(folder + "/memory.current").value_or(Bytes(0));
    const Bytes cached = read_field(folder + "/memory.stat", "inactive_file", 1).value_or(Bytes(0));
    memory.limit = std::min(memory.limit, *limit);
    memory.available = std::min(memory.available, available_in_group(*limit, current, cached));
  }
  return memory;
}

/// libnuma, if it is there: loaded at run time because few machines need it.
class Numa {
 public:
  Numa() : library_(::dlopen("libnuma.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto available = function<int (*)()>("numa_available");
    usable_ = available != nullptr && available() >= 0;
  }
  Numa(const Numa&) = delete;
  Numa& operator=(const Numa&) = delete;
  ~Numa() {
    if (library_ != nullptr) ::dlclose(library_);
  }

  [[nodiscard]] int nodes() const {
    const auto count = function<int (*)()>("numa_num_configured_nodes");
    return usable_ && count != nullptr ? std::max(count(), 1) : 1;
  }

  void bind(void* data, Bytes size, int node) const {
    const auto bind = function<void (*)(void*, std::size_t, int)>("numa_tonode_memory");
    if (usable_ && bind != nullptr) bind(data, size.count(), node);
  }

 private:
  template <typename F>
  [[nodiscard]] F function(const char* name) const {
    if (library_ == nullptr) return nullptr;
    return reinterpret_cast<F>(::dlsym(library_, name));
  }

  void* library_;
  bool usable_ = false;
};

}  // namespace

Bytes total_host_memory() {
  const Bytes machine = read_field("/proc/meminfo", "MemTotal:", 1024).value_or(kNoLimit);
  return std::min(machine, group_memory().limit);
}

Bytes available_in_group(Bytes limit, Bytes current, Bytes cached) {
  const Bytes used = current - std::min(cached, current);
  return limit - std::min(used, limit);
}

Bytes available_host_memory() {
  const Bytes machine = read_field("/proc/meminfo", "MemAvailable:", 1024).value_or(kNoLimit);
  return std::min(machine, group_memory().available);
}

std::optional<Bytes> lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return Bytes(limit.rlim_cur);
}

std::string huge_page_mode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return "unavailable";
  return line.substr(begin + 1, end - begin - 1);
}

int numa_nodes() { return Numa().nodes(); }

void bind_to_node(void* data, Bytes size, int node) {
  const Numa numa;
  if (numa.nodes() > 1 && node >= 0 && node < numa.nodes()) numa.bind(data, size, node);
}

}  // namespace spillway
