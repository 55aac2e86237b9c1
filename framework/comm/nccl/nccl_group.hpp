/// A process group over NCCL; its own file so that one of a single rank can be tested.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace spillway {

/// Of `size` ranks that meet in `store` under `name`, which c10d knows it by afterwards; this one
/// is `rank` and uses the CUDA device `device`.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int rank, int size,
    int device, std::chrono::milliseconds timeout);

}  // namespace spillway
