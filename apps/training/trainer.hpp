/// A small language model that learns a made-up text, step by step, without or with a session.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/optim/adamw.h>

#include "spillway/models/llama.hpp"
#include "spillway/torch/session.hpp"

namespace spillway::app {

struct TrainingStep {
  at::Tensor loss;          ///< On the CPU.
  double milliseconds = 0;  ///< Of forward and backward.
  Bytes peak;               ///< The most that was allocated on the device in it; 0 on the CPU.
  Bytes before;             ///< What was allocated when it began.
};

/// Every trainer of one shape and seed does the same to the bit, under deterministic algorithms.
/// Gradients are there from the start, so that the first step allocates no more than the others.
class Trainer {
 public:
  /// Errors: as Llama.
  explicit Trainer(const LlamaShape& shape);

  /// Forward, backward and update on the next batch, within a step of `session` if there is one.
  /// Waits for the device.
  TrainingStep step(Session* session);

  [[nodiscard]] const Llama& model() const noexcept { return model_; }
  /// Those of the last step, copied to the CPU.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;

 private:
  [[nodiscard]] at::Tensor next_text();

  Llama model_;
  torch::optim::AdamW optimizer_;
  std::vector<std::int64_t> successor_;  // By token: what mostly follows it.
  int steps_ = 0;
};

}  // namespace spillway::app
