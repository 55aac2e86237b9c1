/// How many cases of a test run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace spillway::testing {

/// Whether the environment variable SPILLWAY_TEST_LONG is 1 (`make test-long`).
inline bool runs_long() {
  const char* const wanted = std::getenv("SPILLWAY_TEST_LONG");
  return wanted != nullptr && *wanted == '1';
}

/// All of them where tests run long, else one of `share`; under sanitizers, which take ten times as
/// long, a quarter of that.
inline int cases_of(int all, int share = 5) {
  if (runs_long()) return all;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::max(1, all / (4 * share));
#else
  return std::max(1, all / share);
#endif
}

/// All cases where tests run long, else the first `count`.
template <typename Case>
std::vector<Case> some(std::vector<Case> cases, std::size_t count) {
  if (!runs_long() && cases.size() > count) cases.resize(count);
  return cases;
}

}  // namespace spillway::testing
