/// Several measurements of one thing, in three numbers.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway::app {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
  std::size_t samples = 0;
};

/// Precondition: there is at least one sample.
[[nodiscard]] Spread spread_of(std::vector<double> samples);

/// A value that is exact: no repetition changes it.
[[nodiscard]] Spread exactly(double value);

}  // namespace spillway::app
