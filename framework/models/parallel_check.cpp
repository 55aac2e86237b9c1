#include "models/parallel_check.hpp"

#include "spillway/core/error.hpp"

namespace spillway {

void require(bool holds, const std::string& what) {
  if (!holds) throw InvalidArgument("model", what);
}

void check_divisible(const TensorParallel& parallel,
                     const std::vector<std::pair<std::string, std::int64_t>>& numbers) {
  const std::int64_t ranks = parallel.ranks();
  for (const auto& [name, number] : numbers) {
    if (number % ranks == 0) continue;
    const std::string text = std::to_string(number);
    throw InvalidArgument("model", name + " = " + text + " over " + std::to_string(ranks) +
                                       " tensor-parallel ranks: " + text + " / " +
                                       std::to_string(ranks) + " leaves " +
                                       std::to_string(number % ranks) + "; the next that fits is " +
                                       std::to_string((number / ranks + 1) * ranks));
  }
}

}  // namespace spillway
