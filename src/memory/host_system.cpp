#include "spillway/memory/host_system.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <sys/resource.h>

#include "spillway/core/numbers.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kNoLimit{std::numeric_limits<std::uint64_t>::max()};

/// The number behind `key` in a file of "key number" lines, times `unit`.
std::optional<Bytes> read_field(const fs::path& path, std::string_view key, std::uint64_t unit) {
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
std::optional<Bytes> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::optional<std::int64_t> value = whole_number(line);
  if (!value || *value < 0) return std::nullopt;
  return Bytes(static_cast<std::uint64_t>(*value));
}

/// The names of a control group's files in one version.
struct GroupFiles {
  const char* mount;
  std::array<const char*, 2> limits;
  const char* current;
  std::array<const char*, 2> cached;  ///< In memory.stat, of the group and all below it.
};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup",
                                  {"memory.max", "memory.high"},
                                  "memory.current",
                                  {"inactive_file", "active_file"}};
/// Where version 1 has the other controllers, version 2 is mounted beside them.
constexpr GroupFiles kVersion2Beside = {"sys/fs/cgroup/unified", kVersion2.limits,
                                        kVersion2.current, kVersion2.cached};
constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory",
                                  {"memory.limit_in_bytes", "memory.limit_in_bytes"},
                                  "memory.usage_in_bytes",
                                  {"total_inactive_file", "total_active_file"}};

struct GroupMemory {
  Bytes limit = kNoLimit;
  Bytes available = kNoLimit;
};

/// Narrows `memory` by one group.
void add_group(const fs::path& folder, const GroupFiles& files, GroupMemory& memory) {
  Bytes limit = kNoLimit;
  for (const char* const name : files.limits) {
    limit = std::min(limit, read_number(folder / name).value_or(kNoLimit));
  }
  if (limit == kNoLimit) return;
  const Bytes current = read_number(folder / files.current).value_or(Bytes(0));
  Bytes cached;
  for (const char* const name : files.cached) {
    cached += read_field(folder / "memory.stat", name, 1).value_or(Bytes(0));
  }
  // They are counted apart, so they may be more.
  const Bytes used = current - std::min(cached, current);
  memory.limit = std::min(memory.limit, limit);
  memory.available = std::min(memory.available, limit - std::min(used, limit));
}

/// Narrows `memory` by the group and all above, which limit this process too. In a container the
/// group's path may be that of the host, and its files right at the mount.
void add_groups(const fs::path& root, const GroupFiles& files, fs::path group,
                GroupMemory& memory) {
  const fs::path mount = root / files.mount;
  for (group = group.relative_path(); !group.empty(); group = group.parent_path()) {
    add_group(mount / group, files, memory);
  }
  add_group(mount, files, memory);
}

GroupMemory group_memory(const fs::path& root) {
  GroupMemory memory;
  std::ifstream file(root / "proc/self/cgroup");
  std::string line;  // "0::/path" of version 2, "4:cpu,memory:/path" of version 1.
  while (std::getline(file, line)) {
    const std::size_t names = line.find(':');
    const std::size_t path = names == std::string::npos ? names : line.find(':', names + 1);
    if (path == std::string::npos) continue;
    const std::string controllers = "," + line.substr(names + 1, path - names - 1) + ",";
    const std::string group = line.substr(path + 1);
    if (controllers == ",,") {
      add_groups(root, kVersion2, group, memory);
      add_groups(root, kVersion2Beside, group, memory);
    } else if (controllers.find(",memory,") != std::string::npos) {
      add_groups(root, kVersion1, group, memory);
    }
  }
  return memory;
}

/// Slurm: "8", or "8(x2),4" for nodes of several kinds.
std::optional<int> largest_count(const std::string& text) {
  std::optional<int> most;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string each = text.substr(at, end - at);
    const auto count = whole_number(each.substr(0, each.find('(')));
    if (!count || *count < 1 || *count > 1'000'000) return std::nullopt;
    most = std::max(most.value_or(0), static_cast<int>(*count));
    at = end + 1;
  }
  return most;
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

std::optional<std::string> HostView::from_environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Bytes total_host_memory(const HostView& view) {
  const Bytes machine =
      read_field(view.root / "proc/meminfo", "MemTotal:", 1024).value_or(kNoLimit);
  return std::min(machine, group_memory(view.root).limit);
}

Bytes available_host_memory(const HostView& view) {
  const Bytes machine =
      read_field(view.root / "proc/meminfo", "MemAvailable:", 1024).value_or(kNoLimit);
  return std::min(machine, group_memory(view.root).available);
}

Bytes host_reserve(const HostView& view) {
  constexpr Bytes kMost{4ULL << 30U};
  return std::min(kMost, Bytes(total_host_memory(view).count() / 32));
}

int ranks_on_node(const HostView& view) {
  // Whoever started the processes last comes first: torchrun may run within Slurm.
  for (const char* const name :
       {"LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
        "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE"}) {
    const std::optional<std::string> value = view.environment(name);
    const std::optional<int> count = value ? largest_count(*value) : std::nullopt;
    if (count) return *count;
  }
  return 1;
}

Bytes host_memory_for_rank(const HostView& view) {
  const auto ranks = static_cast<std::uint64_t>(ranks_on_node(view));
  return Bytes(available_host_memory(view).count() / 2 / ranks);
}

Bytes host_room_for_rank(const HostView& view) {
  const Bytes available = available_host_memory(view);
  const auto ranks = static_cast<std::uint64_t>(ranks_on_node(view));
  return Bytes((available - std::min(host_reserve(view), available)).count() / ranks);
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
