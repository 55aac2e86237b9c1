#include "spillway/models/experts.hpp"

#include <ATen/ATen.h>

#include "spillway/torch/scope.hpp"

namespace spillway {
at::Tensor run_expert(const Expert& expert, const at::Tensor& x) {
  at::Tensor gate;
  at::Tensor up;
  {
    const Scope fc1("fc1");
    gate = at::linear(x, expert.gate);
    up = at::linear(x, expert.up);
  }
  at::Tensor product;
  {
    const Scope act("act");
    product = at::silu(gate) * up;
  }
  const Scope fc2("fc2");
  return at::linear(product, expert.down);
}

}  // namespace spillway
