/// A model on one batch, for benchmarks: steps without update, so that each does the same as the
/// one before.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/core/bytes.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/torch/session.hpp"

namespace spillway::app {

struct MeasuredStep {
  double milliseconds = 0;  ///< Of forward and backward, until the device is done.
  Bytes peak;               ///< The most that was allocated in it above what was there before.
};

/// How many gradients of `parameters` differ in a bit after a step with a session from those
/// without: under deterministic algorithms, which are slower and so not timed. `step` makes new
/// gradients.
[[nodiscard]] int count_different_gradients(const std::vector<at::Tensor>& parameters,
                                            Session& session,
                                            const std::function<void(Session*)>& step);

class MeasuredModel {
 public:
  /// The loss of the model on its batch; Llama::loss() of it if nothing is given.
  using Loss = std::function<at::Tensor(const Llama& model, const at::Tensor& tokens)>;

  /// Errors: as Llama.
  explicit MeasuredModel(const LlamaShape& shape);

  /// One step, within a step of `session` if there is one. Waits for the device.
  MeasuredStep step(Session* session, const Loss& loss = {});

  /// As count_different_gradients().
  [[nodiscard]] int count_different(Session& session);

  [[nodiscard]] const Llama& model() const noexcept { return model_; }
  [[nodiscard]] const at::Tensor& tokens() const noexcept { return tokens_; }

 private:
  // Named in traces.
  [[nodiscard]] at::Tensor forward(const Loss& loss) const;
  static void backward(const at::Tensor& loss);

  Llama model_;
  at::Tensor tokens_;
};

}  // namespace spillway::app
