/// Runs code in a child made by fork(), within a time limit: a child that hangs fails the test.
#pragma once

#include <csignal>
#include <cstdlib>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace spillway::testing {

/// How the child ended: "exited with 0", "killed by signal 14" (14: it hung).
/// `work` returns the child's exit code; its own output is not shown. `at_exit`: the child ends by
/// std::exit(), with the destructors of statics; else without them.
enum class EndBy { kReturn, kExit };

template <typename Work>
std::string in_child(const Work& work, EndBy end = EndBy::kReturn, unsigned seconds = 30) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(seconds);  // Its default action ends the child, whatever that waits for.
    int code = 99;
    try {
      code = work();
    } catch (...) {
    }
    if (end == EndBy::kExit) std::exit(code);
    ::_exit(code);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return "not started";
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return "exited with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace spillway::testing
