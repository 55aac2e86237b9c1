/// A small transformer without modules, with scopes, for tests of sessions.
#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace spillway::testing {

struct TinyOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  int layers = 3;
  std::int64_t hidden = 64;
  std::int64_t vocabulary = 128;
  double dropout = 0.1;
  bool tied = false;  ///< The output layer uses the embedding's weight.
};

class TinyModel {
 public:
  explicit TinyModel(const TinyOptions& options);

  /// The loss of predicting each token from those before it. `dropped`: by layer; empty: none is.
  [[nodiscard]] at::Tensor loss(const at::Tensor& tokens,
                                const std::vector<bool>& dropped = {}) const;
  /// The last hidden states.
  [[nodiscard]] at::Tensor hidden(const at::Tensor& tokens,
                                  const std::vector<bool>& dropped = {}) const;

  [[nodiscard]] at::Tensor tokens(std::int64_t batch, std::int64_t length, int seed) const;
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return parameters_; }
  [[nodiscard]] std::vector<at::Tensor> buffers() const { return {}; }
  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  void zero_gradients();
  /// One step of gradient descent.
  void update();

 private:
  struct Layer {
    at::Tensor norm1, qkv, proj, norm2, up, down;
  };

  [[nodiscard]] at::Tensor make(std::vector<std::int64_t> sizes);
  [[nodiscard]] at::Tensor layer(const Layer& weights, const at::Tensor& input) const;

  TinyOptions options_;
  at::Tensor embedding_;
  at::Tensor head_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> parameters_;
};

/// Deterministic algorithms, for as long as it lives.
class Deterministic {
 public:
  Deterministic();
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
  ~Deterministic();
};

/// The number of tensors that differ in at least one bit.
[[nodiscard]] int count_different(const std::vector<at::Tensor>& a,
                                  const std::vector<at::Tensor>& b);

}  // namespace spillway::testing
