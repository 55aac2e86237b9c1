/// Two training runs compared bit for bit.
#pragma once

#include <string>
#include <vector>

#include "train/run/job.hpp"

namespace spillway::app {

/// The results of a training run.
struct TrainingRun {
  std::vector<TrainingStep> steps;
  /// By step, then by parameter; nothing for steps whose gradients were not kept.
  std::vector<std::vector<at::Tensor>> gradients;
};

struct Comparison {
  int losses = 0;     ///< How many were compared.
  int gradients = 0;  ///< How many were compared.
  int different = 0;  ///< Of both, how many differ in at least one bit.
  std::string first;  ///< "step 3, layers.0.mlp.fc1"; empty if nothing differs.

  [[nodiscard]] bool equal() const noexcept { return different == 0; }
};

/// `names`: of the parameters. Precondition: both runs have as many steps and kept the same ones'
/// gradients.
[[nodiscard]] Comparison compare(const TrainingRun& without, const TrainingRun& with,
                                 const std::vector<std::string>& names);

/// Deterministic algorithms of torch, for as long as it lives.
class DeterministicAlgorithms {
 public:
  DeterministicAlgorithms();
  DeterministicAlgorithms(const DeterministicAlgorithms&) = delete;
  DeterministicAlgorithms& operator=(const DeterministicAlgorithms&) = delete;
  ~DeterministicAlgorithms();
};

}  // namespace spillway::app
