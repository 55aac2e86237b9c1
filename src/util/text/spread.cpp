#include "util/text/spread.hpp"

#include <algorithm>

namespace spillway::app {

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const bool odd = samples.size() % 2 == 1;
  const double median = odd ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return {median, samples.front(), samples.back(), samples.size()};
}

Spread exactly(double value) { return {value, value, value, 1}; }

}  // namespace spillway::app
