/// The layers of a GPT-shaped model.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "spillway/models/gpt.hpp"

namespace spillway {

/// Adds what is learned of each position.
class GptPositions : public torch::nn::Module {
 public:
  explicit GptPositions(const GptShape& shape);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  double dropout_;
  at::Tensor weight_;
};

class GptNorm : public torch::nn::Module {
 public:
  explicit GptNorm(const GptShape& shape);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

/// A linear layer with bias.
class GptLinear : public torch::nn::Module {
 public:
  GptLinear(const GptShape& shape, std::int64_t in, std::int64_t out, double scale);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

class GptAttention : public torch::nn::Module {
 public:
  explicit GptAttention(const GptShape& shape);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  GptShape shape_;
  std::shared_ptr<GptNorm> norm_;
  std::shared_ptr<GptLinear> qkv_, proj_;
};

class GptMlp : public torch::nn::Module {
 public:
  GptMlp(const GptShape& shape, int number);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  GptShape shape_;
  std::shared_ptr<GptNorm> norm_;
  std::shared_ptr<GptLinear> fc1_, fc2_;  // Or else
  std::shared_ptr<Moe> moe_;              // this.
};

class GptLayer : public torch::nn::Module {
 public:
  GptLayer(const GptShape& shape, int number);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  std::shared_ptr<GptAttention> attention_;
  std::shared_ptr<GptMlp> mlp_;
};

}  // namespace spillway
