/// What libspillway_mpi.so gives to the program that loads it: one function, kMpiFactory, that
/// starts MPI. The plugin and the program share the types of libtorch and of this header, nothing
/// else of ours, so that code which both link twice has no state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "spillway/comm/world.hpp"

namespace c10d {
class Backend;
}

namespace spillway {

inline constexpr const char* kMpiFactory = "spillway_start_mpi";
/// Changes with everything here and with WorldOptions.
inline constexpr int kMpiPluginVersion = 1;

/// MPI in this process. Destroyed: ends it, together with all other ranks.
class MpiJob {
 public:
  MpiJob() = default;
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  virtual ~MpiJob() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Collective over the job. Backends of the groups of `partition` that have more than one member;
  /// null where this rank is alone.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Backend> split(
      const std::string& name, const std::vector<std::vector<int>>& partition) = 0;

  [[noreturn]] virtual void abort(const std::string& why) noexcept = 0;
};

/// Errors: CommunicationError if MPI cannot be started, or the versions differ.
using StartMpi = std::unique_ptr<MpiJob> (*)(int version, const WorldOptions& options);

}  // namespace spillway
