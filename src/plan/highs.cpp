#include "plan/highs.hpp"

#include <memory>
#include <string>

#include <interfaces/highs_c_api.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

struct Destroy {
  void operator()(void* highs) const noexcept { Highs_destroy(highs); }
};

void require(HighsInt status, const std::string& what) {
  if (status == kHighsStatusError) {
    throw Error("solve", "HiGHS failed to " + what + "; please report the profile it was given");
  }
}

}  // namespace

/// A programme inside of HiGHS.
class HighsModel {
 public:
  HighsModel(const LinearProgramme& programme, const SolveOptions& options)
      : highs_(Highs_create()), columns_(programme.columns()) {
    set_options(options);
    pass(programme, options.relaxed);
    if (!options.start.empty()) {
      require(Highs_setSolution(highs_.get(), options.start.data(), nullptr, nullptr, nullptr),
              "take a start");
    }
  }

  [[nodiscard]] Solution run() {
    require(Highs_run(highs_.get()), "solve");
    Solution solution;
    solution.status = status();
    if (solution.status == SolveStatus::kInfeasible) return solution;
    HighsInt found = kHighsSolutionStatusNone;
    Highs_getIntInfoValue(highs_.get(), "primal_solution_status", &found);
    if (found == kHighsSolutionStatusFeasible) {
      solution.columns.resize(static_cast<std::size_t>(columns_));
      require(Highs_getSolution(highs_.get(), solution.columns.data(), nullptr, nullptr, nullptr),
              "give its solution");
      Highs_getDoubleInfoValue(highs_.get(), "objective_function_value", &solution.objective);
    }
    if (integer_) {
      Highs_getDoubleInfoValue(highs_.get(), "mip_dual_bound", &solution.bound);
    } else if (solution.status == SolveStatus::kOptimal) {
      solution.bound = solution.objective;
    }
    return solution;
  }

 private:
  void set_options(const SolveOptions& options) {
    void* const highs = highs_.get();
    Highs_setBoolOptionValue(highs, "output_flag", 0);
    Highs_setIntOptionValue(highs, "threads", 1);
    Highs_setStringOptionValue(highs, "parallel", "off");
    Highs_setIntOptionValue(highs, "random_seed", 1);
    const double seconds = std::chrono::duration<double>(options.time_limit).count();
    require(Highs_setDoubleOptionValue(highs, "time_limit", seconds), "take a time limit");
    require(Highs_setDoubleOptionValue(highs, "mip_rel_gap", options.gap), "take a gap");
    require(Highs_setIntOptionValue(highs, "mip_max_nodes", options.node_limit),
            "take a limit on nodes");
  }

  void pass(const LinearProgramme& programme, bool relaxed) {
    std::vector<HighsInt> integer(programme.integer_.begin(), programme.integer_.end());
    for (HighsInt& each : integer) {
      each = each != 0 && !relaxed ? kHighsVarTypeInteger : kHighsVarTypeContinuous;
      integer_ = integer_ || each == kHighsVarTypeInteger;
    }
    std::vector<HighsInt> start(programme.row_start_.begin(), programme.row_start_.end());
    start.push_back(static_cast<HighsInt>(programme.index_.size()));
    require(
        Highs_passMip(highs_.get(), columns_, programme.rows(),
                      static_cast<HighsInt>(programme.index_.size()), kHighsMatrixFormatRowwise,
                      kHighsObjSenseMinimize, 0, programme.costs_.data(), programme.lower_.data(),
                      programme.upper_.data(), programme.row_lower_.data(),
                      programme.row_upper_.data(), start.data(), programme.index_.data(),
                      programme.factor_.data(), integer_ ? integer.data() : nullptr),
        "read the programme");
  }

  [[nodiscard]] SolveStatus status() const {
    const HighsInt status = Highs_getModelStatus(highs_.get());
    if (status == kHighsModelStatusOptimal || status == kHighsModelStatusModelEmpty) {
      return SolveStatus::kOptimal;
    }
    if (status == kHighsModelStatusInfeasible) return SolveStatus::kInfeasible;
    if (status == kHighsModelStatusTimeLimit || status == kHighsModelStatusIterationLimit ||
        status == kHighsModelStatusSolutionLimit || status == kHighsModelStatusInterrupt ||
        status == kHighsModelStatusUnknown) {
      return SolveStatus::kStopped;
    }
    throw Error("solve", "HiGHS ended with model status " + std::to_string(status) +
                             "; please report the profile it was given");
  }

  std::unique_ptr<void, Destroy> highs_;
  HighsInt columns_;
  bool integer_ = false;
};

Solution solve(const LinearProgramme& programme, const SolveOptions& options) {
  return HighsModel(programme, options).run();
}

}  // namespace spillway
