/// Linear and mixed-integer models, and the HiGHS solver behind its C interface.
///
/// Deterministic: one thread, a fixed seed. The same model and options give the same solution
/// as long as the time limit does not end the search; use the limit on nodes to end it early.
/// Threads: any thread may solve; models share nothing.
#pragma once

#include <chrono>
#include <limits>
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

enum class SolveStatus {
  kOptimal,     ///< To the requested gap.
  kInfeasible,  ///< No solution exists.
  kStopped,     ///< A limit was reached; there may be a solution.
};

struct SolveOptions {
  bool relaxed = false;  ///< Integer columns may have any value within their bounds.
  double gap = 1e-3;     ///< Relative.
  std::chrono::milliseconds time_limit{60000};
  int node_limit = std::numeric_limits<int>::max();
  std::vector<double> start = {};  ///< An initial solution, by column; may be empty.
};

struct Solution {
  SolveStatus status{};
  std::vector<double> columns;  ///< Empty if none was found.
  double objective = 0;         ///< Of `columns`.
  /// The lower bound on the objective; minus infinity if there is none.
  double bound = -std::numeric_limits<double>::infinity();
};

/// Errors: Error if Spillway was built without HiGHS, or if HiGHS fails; the text says why.
[[nodiscard]] Solution solve(const LinearModel& model, const SolveOptions& options);

}  // namespace spillway
