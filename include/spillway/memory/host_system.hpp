/// What the operating system says about host memory. Read at every call; no state.
#pragma once

#include <optional>
#include <string>

#include "spillway/core/bytes.hpp"

namespace spillway {

/// All memory of the machine, or of the control group this process runs in if that is less.
[[nodiscard]] Bytes total_host_memory();

/// What can be used now without pushing others out, within the control group's limit.
[[nodiscard]] Bytes available_host_memory();

/// What a control group has free: its limit less what it uses. Cached file pages count as used
/// there but are evicted when needed; the system counts them apart, so they may be more than
/// `current`.
[[nodiscard]] Bytes available_in_group(Bytes limit, Bytes current, Bytes cached);

/// How much memory this process may lock (`ulimit -l`); nothing: no limit.
[[nodiscard]] std::optional<Bytes> lock_limit();

/// The mode of transparent huge pages ("always", "madvise", "never"), or "unavailable".
[[nodiscard]] std::string huge_page_mode();

/// How many NUMA nodes libnuma sees; 1 where there is no libnuma.
[[nodiscard]] int numa_nodes();

/// Binds pages not yet touched to a node. Does nothing where numa_nodes() is 1.
void bind_to_node(void* data, Bytes size, int node);

}  // namespace spillway
