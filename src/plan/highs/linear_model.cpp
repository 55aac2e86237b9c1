#include <algorithm>

#include "plan/highs/highs.hpp"

namespace spillway {

int LinearModel::add_column(double lower, double upper, double cost) {
  costs_.push_back(cost);
  lower_.push_back(lower);
  upper_.push_back(upper);
  integer_.push_back(0);
  return columns() - 1;
}

int LinearModel::add_binary(double cost) {
  const int column = add_column(0, 1, cost);
  integer_.back() = 1;
  return column;
}

int LinearModel::add_row(double lower, double upper, const std::vector<Term>& terms) {
  std::vector<Term> sorted = terms;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Term& a, const Term& b) { return a.column < b.column; });
  row_start_.push_back(static_cast<int>(index_.size()));
  for (std::size_t i = 0; i < sorted.size();) {
    const int column = sorted[i].column;
    double factor = 0;
    for (; i < sorted.size() && sorted[i].column == column; ++i) factor += sorted[i].factor;
    if (factor == 0) continue;
    index_.push_back(column);
    factor_.push_back(factor);
  }
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  return rows() - 1;
}

void LinearModel::set_bounds(int column, double lower, double upper) {
  lower_[static_cast<std::size_t>(column)] = lower;
  upper_[static_cast<std::size_t>(column)] = upper;
}

}  // namespace spillway
