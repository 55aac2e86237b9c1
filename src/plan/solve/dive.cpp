#include "plan/solve/dive.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// A value that is nearer than this to an integer is one.
constexpr double kWhole = 1e-6;
/// Relative to the objective: what costs less costs nothing.
constexpr double kNothing = 1e-7;
/// Of more fractional columns than this, the nearest are decided together, half of them at most.
constexpr std::size_t kSingly = 60;

class Dive {
 public:
  Dive(const LinearModel& model, Relaxation& relaxation, const Solution& relaxed)
      : model_(model), relaxation_(relaxation), found_(relaxed) {}

  [[nodiscard]] std::vector<double> run() && {
    hold_integral();
    while (decide_some()) {
    }
    return complete_ ? std::move(found_.columns) : std::vector<double>();
  }

 private:
  struct Open {
    int column = 0;
    double distance = 0;  // To the nearest integer.
  };

  [[nodiscard]] double value(int column) const { return found_.columns[to_index(column)]; }
  [[nodiscard]] double distance(int column) const {
    return std::abs(value(column) - std::round(value(column)));
  }

  /// What came out integral stays so, as long as the rest finds a solution: fewer to decide.
  void hold_integral() {
    for (int column = 0; column < model_.columns(); ++column) {
      if (!model_.is_integer(column) || model_.lower(column) == model_.upper(column)) continue;
      if (distance(column) > kWhole) {
        open_.push_back({column, 0});
        continue;
      }
      set(column, std::round(value(column)));
      held_.push_back(column);
    }
  }

  void set(int column, double bound) { relaxation_.set_bounds(column, bound, bound); }

  /// False: nothing is left, or nothing helps.
  [[nodiscard]] bool decide_some() {
    std::erase_if(open_, [this](Open& each) {
      each.distance = distance(each.column);
      if (each.distance > kWhole) return false;
      // It may change again, but not to a fraction that is not seen.
      free_.push_back(each.column);
      return true;
    });
    for (const int column : free_) {
      if (distance(column) > kWhole) open_.push_back({column, distance(column)});
    }
    std::erase_if(free_, [this](int column) { return distance(column) > kWhole; });
    complete_ = open_.empty();
    if (complete_) return false;
    std::stable_sort(open_.begin(), open_.end(),
                     [](const Open& a, const Open& b) { return a.distance < b.distance; });
    if (open_.size() > kSingly &&
        decide_together(std::min(open_.size() - kSingly, open_.size() / 2))) {
      return true;
    }
    return decide(open_.front().column) || (release_held() && decide(open_.front().column));
  }

  [[nodiscard]] bool decide_together(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      set(open_[i].column, std::round(value(open_[i].column)));
    Solution found = relaxation_.solve();
    if (found.columns.empty()) {
      for (std::size_t i = 0; i < count; ++i) {
        const int column = open_[i].column;
        relaxation_.set_bounds(column, model_.lower(column), model_.upper(column));
      }
      return false;
    }
    found_ = std::move(found);
    open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(count));
    return true;
  }

  [[nodiscard]] bool decide(int column) {
    const double nearest = std::round(value(column));
    set(column, nearest);
    Solution found = relaxation_.solve();
    if (cost(found) > found_.objective + kNothing * std::abs(found_.objective)) {
      set(column, 1 - nearest);
      Solution other = relaxation_.solve();
      if (cost(other) < cost(found)) {
        found = std::move(other);
      } else {
        set(column, nearest);
      }
    }
    if (found.columns.empty()) {
      relaxation_.set_bounds(column, model_.lower(column), model_.upper(column));
      return false;
    }
    found_ = std::move(found);
    std::erase_if(open_, [column](const Open& each) { return each.column == column; });
    return true;
  }

  [[nodiscard]] static double cost(const Solution& solution) {
    return solution.columns.empty() ? std::numeric_limits<double>::infinity() : solution.objective;
  }

  /// False: it has been done before.
  [[nodiscard]] bool release_held() {
    if (held_.empty()) return false;
    for (const int column : held_) {
      relaxation_.set_bounds(column, model_.lower(column), model_.upper(column));
    }
    free_.insert(free_.end(), held_.begin(), held_.end());
    held_.clear();
    return true;
  }

  const LinearModel& model_;
  Relaxation& relaxation_;
  Solution found_;
  std::vector<Open> open_;  // Fractional, and to be decided.
  std::vector<int> free_;   // Integral now, though they need not be.
  std::vector<int> held_;   // Integral from the start, and held there.
  bool complete_ = false;
};

}  // namespace

std::vector<double> dive(const LinearModel& model, Relaxation& relaxation,
                         const Solution& relaxed) {
  return Dive(model, relaxation, relaxed).run();
}

}  // namespace spillway
