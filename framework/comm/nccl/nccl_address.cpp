#include <charconv>
#include <cstdlib>
#include <cstring>

#include "spillway/comm/world.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

std::string value_of(const char* variable) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  if (text != nullptr && *text != '\0') return text;
  throw InvalidArgument("nccl", std::string("the variable ") + variable +
                                    " is not set; start the program with torchrun, or with mpirun "
                                    "and a world of MPI");
}

int number_of(const char* variable) {
  const std::string text = value_of(variable);
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    throw InvalidArgument("nccl", std::string("the variable ") + variable + " is '" + text +
                                      "'; it must be a number that is not negative");
  }
  return number;
}

}  // namespace

NcclAddress NcclAddress::from_environment() {
  return {.host = value_of("MASTER_ADDR"),
          .port = number_of("MASTER_PORT"),
          .rank = number_of("RANK"),
          .size = number_of("WORLD_SIZE"),
          .local_rank = number_of("LOCAL_RANK")};
}

}  // namespace spillway
