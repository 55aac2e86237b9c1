#include <cstdlib>
#include <filesystem>
#include <optional>

#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/mpi_plugin.hpp"
#include "comm/partition.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "SPILLWAY_MPI_PLUGIN";
constexpr const char* kFile = "libspillway_mpi.so";

/// The file that holds this code: the program, or the shared library that it was linked into.
fs::path file_of_this_code() {
  Dl_info info{};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): any address of this file will do.
  if (dladdr(reinterpret_cast<const void*>(&file_of_this_code), &info) != 0 &&
      info.dli_fname != nullptr) {
    std::error_code failed;
    if (fs::path path = fs::canonical(info.dli_fname, failed); !failed) return path;
  }
  return fs::read_symlink("/proc/self/exe");
}

std::vector<fs::path> plugin_paths() {
  const char* named = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe)
  if (named != nullptr && *named != '\0') return {named};
  const fs::path folder = file_of_this_code().parent_path();
  return {folder / kFile, folder.parent_path() / "lib" / kFile, folder.parent_path() / kFile};
}

/// Loaded once and never unloaded: MPI's threads and exit handlers live in it.
StartMpi load_plugin() {
  std::string tried;
  for (const fs::path& path : plugin_paths()) {
    if (!fs::exists(path)) {
      tried += "\n  " + path.string() + ": no such file";
      continue;
    }
    // MPI loads parts of itself that look for its symbols among the global ones.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      throw CommunicationError("mpi", "the plugin could not be loaded: " + std::string(dlerror()) +
                                          "; install Open MPI (Debian: libopenmpi3, openmpi-bin) "
                                          "in the version that Spillway was built with");
    }
    void* function = dlsym(library, kMpiFactory);
    if (function == nullptr) {
      throw CommunicationError("mpi", path.string() + " is no plugin of Spillway: it has no " +
                                          kMpiFactory + "; set " + kVariable +
                                          " to the one that was built with this program");
    }
    return reinterpret_cast<StartMpi>(function);  // NOLINT(cppcoreguidelines-pro-type-*)
  }
  throw CommunicationError("mpi", std::string(kFile) + " was not found:" + tried +
                                      "\nbuild Spillway where MPI is installed (Debian: "
                                      "libopenmpi-dev), or set " +
                                      kVariable + " to that file");
}

class MpiWorld final : public World {
 public:
  explicit MpiWorld(const WorldOptions& options)
      : timeout_(options.timeout), job_(load_plugin()(kMpiPluginVersion, options)) {}

  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld() override {
    for (const std::string& name : registered_) c10d::unregister_process_group(name);
    groups_.clear();
  }

  [[nodiscard]] int rank() const override { return job_->rank(); }
  [[nodiscard]] int size() const override { return job_->size(); }

  [[nodiscard]] Group group(const std::string& name,
                            const std::vector<std::vector<int>>& partition) override {
    const std::vector<int>& mine = list_of(rank(), size(), name, partition);
    const c10::intrusive_ptr<c10d::Backend> backend = job_->split(name, partition);
    if (backend == nullptr) return Group(rank());
    auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
    constexpr auto kKind = c10d::ProcessGroup::BackendType::CUSTOM;
    // In this order: the name is kept in the backend.
    group->setBackend(c10::DeviceType::CPU, kKind, backend);
    group->setDefaultBackend(kKind);
    // Functional collectives find it by a name that is not given twice.
    registered_.push_back("spillway/" + name + '/' + std::to_string(registered_.size()));
    group->setGroupName(registered_.back());
    c10d::register_process_group(registered_.back(), group);
    groups_.push_back(group);  // The registry keeps no reference.
    return Group(std::move(group), mine, name, timeout_);
  }

  [[noreturn]] void abort(const std::string& why) noexcept override {
    job_->abort(why);
    std::abort();  // The compiler does not see that a virtual function never returns.
  }

 private:
  std::chrono::milliseconds timeout_;
  std::unique_ptr<MpiJob> job_;
  std::vector<std::string> registered_;
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups_;
};

}  // namespace

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
  return std::make_unique<MpiWorld>(options);
}

}  // namespace spillway
