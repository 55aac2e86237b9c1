/// How many cases of a random test run.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace spillway::testing {

/// All of them where the environment variable SPILLWAY_TEST_LONG is 1 (`make test-long`), else one
/// of
/// `share`; under sanitizers, which take ten times as long, a quarter of that.
inline int cases_of(int all, int share = 5) {
  const char* const wanted = std::getenv("SPILLWAY_TEST_LONG");
  if (wanted != nullptr && *wanted == '1') return all;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::max(1, all / (4 * share));
#else
  return std::max(1, all / share);
#endif
}

}  // namespace spillway::testing
