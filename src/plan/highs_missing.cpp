#include "plan/highs.hpp"
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

RelaxedSolver::RelaxedSolver(const LinearProgramme& /*programme*/) { refuse(); }

RelaxedSolver::~RelaxedSolver() = default;

void RelaxedSolver::set_bounds(int /*column*/, double /*lower*/, double /*upper*/) { refuse(); }

Solution RelaxedSolver::solve(std::chrono::milliseconds /*time_limit*/) { refuse(); }

Solution solve(const LinearProgramme& /*programme*/, const SolveOptions& /*options*/) { refuse(); }

}  // namespace spillway
