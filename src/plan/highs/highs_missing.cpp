#include "plan/highs/highs.hpp"
#include "spillway/core/error.hpp"

namespace spillway {

Solution solve(const LinearModel& /*model*/, const SolveOptions& /*options*/) {
  throw Error("plan",
              "the planner needs the HiGHS solver, and Spillway was built without it; install the "
              "Python package highsbox (scripts/setup.sh does), pass -DSPILLWAY_PYTHON=<a python "
              "that has it> to CMake and build again, or plan by rules");
}

}  // namespace spillway
