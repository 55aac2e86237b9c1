/// How a rank ends at once.
#pragma once

#include <string>

namespace spillway {

/// Writes "spillway: rank 3 of 8 ends the job: <why>" to standard error, in one piece.
void say_end(int rank, int size, const std::string& why) noexcept;

/// The same, then ends this process without destructors. What started it ends the other ranks.
[[noreturn]] void end_process(int rank, int size, const std::string& why) noexcept;

}  // namespace spillway
