#include "comm/mpi/check.hpp"

#include <array>
#include <string>

#include "spillway/groups/error.hpp"

namespace spillway::mpi {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommunicationError(call, std::string(text.data(), static_cast<std::size_t>(length)) +
                                     "; another rank may have ended or called something else");
}

}  // namespace spillway::mpi
