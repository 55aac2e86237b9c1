#include "comm/process_end.hpp"

#include <cstdlib>

#include <unistd.h>

namespace spillway {

void say_end(int rank, int size, const std::string& why) noexcept {
  try {
    const std::string text = "spillway: rank " + std::to_string(rank) + " of " +
                             std::to_string(size) + " ends the job: " + why + '\n';
    // One write, so that the lines of several ranks do not mix. If it fails, nothing more can be
    // reported.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  } catch (const std::bad_alloc&) {
    return;
  }
}

void end_process(int rank, int size, const std::string& why) noexcept {
  say_end(rank, size, why);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace spillway
