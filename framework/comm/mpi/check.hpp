/// MPI's return codes as exceptions.
#pragma once

#include <mpi.h>

namespace spillway::mpi {

/// Errors: CommunicationError with MPI's text unless `code` is MPI_SUCCESS. `call` names the
/// function.
void check(int code, const char* call);

}  // namespace spillway::mpi
