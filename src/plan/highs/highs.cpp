#include "plan/highs/highs.hpp"

#include <memory>
#include <string>

#include "plan/highs/highs_library.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

struct Destroy {
  void operator()(void* model) const noexcept { highs().destroy(model); }
};

void require(HighsInt status, const std::string& what) {
  if (status == kHighsStatusError) {
    throw Error("solve", "HiGHS failed to " + what + "; please report the profile it was given");
  }
}

}  // namespace

/// A model inside of HiGHS.
class HighsModel {
 public:
  HighsModel(const LinearModel& model, const SolveOptions& options)
      : highs_(highs().create()), columns_(model.columns()) {
    set_options(options);
    pass(model, options.relaxed);
    if (!options.start.empty()) {
      require(highs().set_solution(highs_.get(), options.start.data(), nullptr, nullptr, nullptr),
              "take a start");
    }
  }

  [[nodiscard]] Solution run() {
    require(highs().run(highs_.get()), "solve");
    Solution solution;
    solution.status = status();
    if (solution.status == SolveStatus::kInfeasible) return solution;
    HighsInt found = kHighsSolutionStatusNone;
    highs().get_int_info(highs_.get(), "primal_solution_status", &found);
    if (found == kHighsSolutionStatusFeasible) {
      solution.columns.resize(static_cast<std::size_t>(columns_));
      require(
          highs().get_solution(highs_.get(), solution.columns.data(), nullptr, nullptr, nullptr),
          "give its solution");
      highs().get_double_info(highs_.get(), "objective_function_value", &solution.objective);
    }
    if (integer_) {
      highs().get_double_info(highs_.get(), "mip_dual_bound", &solution.bound);
    } else if (solution.status == SolveStatus::kOptimal) {
      solution.bound = solution.objective;
    }
    return solution;
  }

 private:
  void set_options(const SolveOptions& options) {
    void* const model = highs_.get();
    highs().set_bool_option(model, "output_flag", 0);
    highs().set_int_option(model, "threads", 1);
    highs().set_string_option(model, "parallel", "off");
    highs().set_int_option(model, "random_seed", 1);
    const double seconds = std::chrono::duration<double>(options.time_limit).count();
    require(highs().set_double_option(model, "time_limit", seconds), "take a time limit");
    require(highs().set_double_option(model, "mip_rel_gap", options.gap), "take a gap");
    require(highs().set_int_option(model, "mip_max_nodes", options.node_limit),
            "take a limit on nodes");
  }

  void pass(const LinearModel& model, bool relaxed) {
    std::vector<HighsInt> integer(model.integer_.begin(), model.integer_.end());
    for (HighsInt& each : integer) {
      each = each != 0 && !relaxed ? kHighsVarTypeInteger : kHighsVarTypeContinuous;
      integer_ = integer_ || each == kHighsVarTypeInteger;
    }
    std::vector<HighsInt> start(model.row_start_.begin(), model.row_start_.end());
    start.push_back(static_cast<HighsInt>(model.index_.size()));
    require(highs().pass_mip(highs_.get(), columns_, model.rows(),
                             static_cast<HighsInt>(model.index_.size()), kHighsMatrixFormatRowwise,
                             kHighsObjSenseMinimize, 0, model.costs_.data(), model.lower_.data(),
                             model.upper_.data(), model.row_lower_.data(), model.row_upper_.data(),
                             start.data(), model.index_.data(), model.factor_.data(),
                             integer_ ? integer.data() : nullptr),
            "read the model");
  }

  [[nodiscard]] SolveStatus status() const {
    const HighsInt status = highs().get_model_status(highs_.get());
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

Solution solve(const LinearModel& model, const SolveOptions& options) {
  return HighsModel(model, options).run();
}

}  // namespace spillway
