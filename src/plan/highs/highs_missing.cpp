#include "plan/highs/highs.hpp"
#include "spillway/core/error.hpp"

namespace spillway {

namespace {

[[noreturn]] void refuse() {
  throw Error("plan",
              "the planner needs the HiGHS solver, and Spillway was built without it; install the "
              "Python package highsbox (scripts/setup.sh does), pass -DSPILLWAY_PYTHON=<a python "
              "that has it> to CMake and build again, or plan by rules");
}

}  // namespace

class HighsModel {};

Relaxation::Relaxation(const LinearModel& /*model*/, const Basis& /*basis*/) { refuse(); }
Relaxation::~Relaxation() = default;
void Relaxation::set_bounds(int /*column*/, double /*lower*/, double /*upper*/) {}
Solution Relaxation::solve() { refuse(); }
Basis Relaxation::basis() const { refuse(); }

}  // namespace spillway
