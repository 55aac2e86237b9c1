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
  HighsModel(const LinearModel& model, const Basis& basis)
      : highs_(highs().create()), columns_(model.columns()), rows_(model.rows()) {
    set_options();
    pass(model);
    if (basis.columns.size() != static_cast<std::size_t>(columns_) ||
        basis.rows.size() != static_cast<std::size_t>(rows_)) {
      return;
    }
    const std::vector<HighsInt> columns(basis.columns.begin(), basis.columns.end());
    const std::vector<HighsInt> rows(basis.rows.begin(), basis.rows.end());
    require(highs().set_basis(highs_.get(), columns.data(), rows.data()), "take a basis");
  }

  void set_bounds(int column, double lower, double upper) {
    require(highs().change_column_bounds(highs_.get(), column, lower, upper), "change a bound");
  }

  [[nodiscard]] Basis basis() const {
    std::vector<HighsInt> columns(static_cast<std::size_t>(columns_));
    std::vector<HighsInt> rows(static_cast<std::size_t>(rows_));
    require(highs().get_basis(highs_.get(), columns.data(), rows.data()), "give its basis");
    return {{columns.begin(), columns.end()}, {rows.begin(), rows.end()}};
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
    if (solution.status == SolveStatus::kOptimal) solution.bound = solution.objective;
    return solution;
  }

 private:
  void set_options() {
    void* const model = highs_.get();
    highs().set_bool_option(model, "output_flag", 0);
    highs().set_int_option(model, "threads", 1);
    highs().set_string_option(model, "parallel", "off");
    highs().set_int_option(model, "random_seed", 1);
  }

  void pass(const LinearModel& model) {
    std::vector<HighsInt> start(model.row_start_.begin(), model.row_start_.end());
    start.push_back(static_cast<HighsInt>(model.index_.size()));
    require(highs().pass_mip(highs_.get(), columns_, rows_,
                             static_cast<HighsInt>(model.index_.size()), kHighsMatrixFormatRowwise,
                             kHighsObjSenseMinimize, 0, model.costs_.data(), model.lower_.data(),
                             model.upper_.data(), model.row_lower_.data(), model.row_upper_.data(),
                             start.data(), model.index_.data(), model.factor_.data(), nullptr),
            "read the model");
  }

  [[nodiscard]] SolveStatus status() const {
    const HighsInt status = highs().get_model_status(highs_.get());
    if (status == kHighsModelStatusOptimal || status == kHighsModelStatusModelEmpty) {
      return SolveStatus::kOptimal;
    }
    if (status == kHighsModelStatusInfeasible) return SolveStatus::kInfeasible;
    if (status == kHighsModelStatusIterationLimit || status == kHighsModelStatusUnknown) {
      return SolveStatus::kStopped;
    }
    throw Error("solve", "HiGHS ended with model status " + std::to_string(status) +
                             "; please report the profile it was given");
  }

  std::unique_ptr<void, Destroy> highs_;
  HighsInt columns_;
  HighsInt rows_;
};

Relaxation::Relaxation(const LinearModel& model, const Basis& basis)
    : model_(std::make_unique<HighsModel>(model, basis)) {}

Relaxation::~Relaxation() = default;

void Relaxation::set_bounds(int column, double lower, double upper) {
  model_->set_bounds(column, lower, upper);
}

Solution Relaxation::solve() { return model_->run(); }

Basis Relaxation::basis() const { return model_->basis(); }

}  // namespace spillway
