/// The backend of MPI's plugin, as groups know it.
#pragma once

namespace spillway {

inline constexpr const char* kMpiBackendName = "spillway_mpi";

}  // namespace spillway
