/// The layers of a GPT-shaped model.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "spillway/models/gpt.hpp"
#include "spillway/tensor/tensor_modules.hpp"

namespace spillway {

/// Adds what is learned of each position.
class GptPositions : public torch::nn::Module {
 public:
  explicit GptPositions(const GptShape& shape);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  double dropout_;
  TensorParallel parallel_;
  at::Tensor weight_;
};

class GptNorm : public torch::nn::Module {
 public:
  explicit GptNorm(const GptShape& shape);

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
  std::shared_ptr<ColumnLinear> qkv_;
  std::shared_ptr<RowLinear> proj_;
};

class GptMlp : public torch::nn::Module {
 public:
  GptMlp(const GptShape& shape, int number);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  GptShape shape_;
  std::shared_ptr<GptNorm> norm_;
  // Either both linear layers or the mixture of experts.
  std::shared_ptr<ColumnLinear> fc1_;
  std::shared_ptr<RowLinear> fc2_;
  std::shared_ptr<Moe> moe_;
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
