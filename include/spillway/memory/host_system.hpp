/// What the operating system says about host memory. Read at every call; no state.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "spillway/core/bytes.hpp"

namespace spillway {

/// Where the functions below look; by default the machine that this process runs on.
struct HostView {
  std::filesystem::path root = "/";  ///< Of proc and sys.
  /// The value of a variable of the environment; nothing if it is not set.
  std::function<std::optional<std::string>(const char* name)> environment = from_environment;

  static std::optional<std::string> from_environment(const char* name);
};

/// All memory of the machine, or of the control group this process runs in if that is less.
[[nodiscard]] Bytes total_host_memory(const HostView& view = {});

/// What can be used now without pushing others out, within the limits of all control groups that
/// this process is in, of version 1 and 2: there, file pages in the cache do not count as used.
[[nodiscard]] Bytes available_host_memory(const HostView& view = {});

/// What the system and other programs are left when pages are pinned, which nobody can evict: a
/// thirty-second of total_host_memory(), at most 4 GiB.
[[nodiscard]] Bytes host_reserve(const HostView& view = {});

/// How many processes of this job run on this node, as its launcher says: torchrun, DeepSpeed's,
/// MPI, or Slurm. 1 where none says it.
[[nodiscard]] int ranks_on_node(const HostView& view = {});

/// The host memory that one rank may plan with: its share of half of what is available, so that the
/// ranks of a node, each of which asks before any has pinned much, do not want more than there is.
[[nodiscard]] Bytes host_memory_for_rank(const HostView& view = {});

/// How much more memory one rank may have in all: its share of what is available besides
/// host_reserve().
[[nodiscard]] Bytes host_room_for_rank(const HostView& view = {});

/// How much memory this process may lock (`ulimit -l`); nothing: no limit.
[[nodiscard]] std::optional<Bytes> lock_limit();

/// The mode of transparent huge pages ("always", "madvise", "never"), or "unavailable".
[[nodiscard]] std::string huge_page_mode();

/// How many NUMA nodes libnuma sees; 1 where there is no libnuma.
[[nodiscard]] int numa_nodes();

/// Binds pages not yet touched to a node. Does nothing where numa_nodes() is 1.
void bind_to_node(void* data, Bytes size, int node);

}  // namespace spillway
