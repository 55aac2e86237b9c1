/// Linear models, and the HiGHS solver behind its C interface.
///
/// Deterministic: one thread, a fixed seed, no limit on time. The same models, solved in the same
/// order from the same bases, give the same solutions.
/// Threads: any thread may solve; models share nothing.
#pragma once

#include <limits>
#include <memory>
#include <vector>

namespace spillway {

/// Minimise the columns' costs under bounds on columns and rows.
class LinearModel {
 public:
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  struct Term {
    int column = 0;
    double factor = 0;
  };

  int add_column(double lower, double upper, double cost = 0);
  /// 0 or 1.
  int add_binary(double cost = 0);
  /// Terms of the same column add up.
  int add_row(double lower, double upper, const std::vector<Term>& terms);

  void set_bounds(int column, double lower, double upper);

  [[nodiscard]] int columns() const { return static_cast<int>(costs_.size()); }
  [[nodiscard]] int rows() const { return static_cast<int>(row_lower_.size()); }
  [[nodiscard]] bool is_integer(int column) const {
    return integer_[static_cast<std::size_t>(column)] != 0;
  }
  [[nodiscard]] double lower(int column) const { return lower_[static_cast<std::size_t>(column)]; }
  [[nodiscard]] double upper(int column) const { return upper_[static_cast<std::size_t>(column)]; }

 private:
  friend class HighsModel;

  std::vector<double> costs_;
  std::vector<double> lower_;
  std::vector<double> upper_;
  std::vector<int> integer_;
  std::vector<double> row_lower_;
  std::vector<double> row_upper_;
  std::vector<int> row_start_;  // By row, into the two below.
  std::vector<int> index_;
  std::vector<double> factor_;
};

/// Where a solver of linear models ended: which columns and rows are at one of their bounds.
/// Another model of the same size that differs little is solved from there in a fraction of the
/// time; for one of another size it means nothing, and is not used.
struct Basis {
  std::vector<int> columns;  ///< Empty: none.
  std::vector<int> rows;
};

enum class SolveStatus {
  kOptimal,
  kInfeasible,  ///< No solution exists.
  kStopped,     ///< The solver gave up; there may be a solution.
};

struct Solution {
  SolveStatus status{};
  std::vector<double> columns;  ///< Empty if none was found.
  double objective = 0;         ///< Of `columns`.
  /// The lower bound on the objective; minus infinity if there is none.
  double bound = -std::numeric_limits<double>::infinity();
};

class HighsModel;

/// A model whose integer columns may have any value, to be solved again and again with other
/// bounds: each time from where it ended before.
/// Errors: Error if Spillway was built without HiGHS, or if HiGHS fails; the text says why.
class Relaxation {
 public:
  /// `basis`: where to begin; may be empty.
  explicit Relaxation(const LinearModel& model, const Basis& basis = {});
  ~Relaxation();

  void set_bounds(int column, double lower, double upper);
  [[nodiscard]] Solution solve();
  /// After solve().
  [[nodiscard]] Basis basis() const;

 private:
  std::unique_ptr<HighsModel> model_;
};

}  // namespace spillway
