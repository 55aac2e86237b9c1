#include "train/run/comparison.hpp"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <ATen/Context.h>

namespace spillway::app {
namespace {

/// Not at::equal(): a NaN must equal itself, and 0 must not equal -0.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace

Comparison compare(const TrainingRun& without, const TrainingRun& with,
                   const std::vector<std::string>& names) {
  Comparison result;
  const auto look = [&](bool same, std::size_t step, const std::string& what) {
    if (same) return;
    if (result.different++ == 0) result.first = "step " + std::to_string(step + 1) + ", " + what;
  };
  for (std::size_t i = 0; i < without.steps.size(); ++i) {
    look(std::bit_cast<std::uint64_t>(without.steps[i].loss) ==
             std::bit_cast<std::uint64_t>(with.steps[i].loss),
         i, "the loss");
    ++result.losses;
    for (std::size_t j = 0; j < without.gradients[i].size(); ++j) {
      look(same_bits(without.gradients[i][j], with.gradients[i][j]), i, names[j]);
      ++result.gradients;
    }
  }
  return result;
}

DeterministicAlgorithms::DeterministicAlgorithms() {
  // cuBLAS reads it when it is first used; without it some of its kernels are not deterministic.
  (void)setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, false);
}

DeterministicAlgorithms::~DeterministicAlgorithms() {
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace spillway::app
