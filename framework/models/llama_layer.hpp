/// One layer of a Llama-shaped model, and its last one.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "spillway/models/experts.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/tensor/tensor_modules.hpp"

namespace spillway {

/// The tables of the rotary embedding, which all layers read.
struct RotaryTables {
  at::Tensor cos;  ///< [tokens, head width / 2]
  at::Tensor sin;
};

/// Made when first asked for, then the same for all that ask.
class SharedRotaryTables {
 public:
  explicit SharedRotaryTables(const LlamaShape& shape) : shape_(shape) {}

  [[nodiscard]] const RotaryTables& get();

 private:
  LlamaShape shape_;
  RotaryTables tables_;
};

class LlamaAttention : public ShardedModule {
 public:
  LlamaAttention(const LlamaShape& shape, const RotaryTables& tables);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  [[nodiscard]] at::Tensor rotate(const at::Tensor& x) const;

  LlamaShape shape_;
  at::Tensor norm_, qkv_, proj_, cos_, sin_;
};

class LlamaMlp : public ShardedModule {
 public:
  LlamaMlp(const LlamaShape& shape, int number);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  void add_dense(const LlamaShape& shape);
  [[nodiscard]] at::Tensor run_dense(const at::Tensor& h) const;

  LlamaShape shape_;
  at::Tensor norm_;
  // Either the dense MLP or the mixture of experts.
  Expert dense_;
  std::shared_ptr<Moe> moe_;
};

class LlamaLayer : public torch::nn::Module {
 public:
  LlamaLayer(const LlamaShape& shape, int number,
             const std::shared_ptr<SharedRotaryTables>& tables);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  std::shared_ptr<LlamaAttention> attention_;
  std::shared_ptr<LlamaMlp> mlp_;
};

/// The norm before the head.
class LlamaNorm : public torch::nn::Module {
 public:
  explicit LlamaNorm(const LlamaShape& shape);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_;
};

/// Norm and linear layer in one.
class LlamaHead : public ShardedModule {
 public:
  explicit LlamaHead(const LlamaShape& shape);

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor norm_, linear_;
};

}  // namespace spillway
