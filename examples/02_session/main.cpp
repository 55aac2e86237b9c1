/// Trains a small model whose activations go to host memory and come back, by rules.
#include <iostream>

#include <ATen/ATen.h>

#include "spillway/torch/scope.hpp"
#include "spillway/torch/session.hpp"

int main() {
  // The two layers of a model; any torch::nn::Module registers with session.register_model().
  const at::Tensor up = (at::randn({1024, 256}) * 0.05).set_requires_grad(true);
  const at::Tensor down = (at::randn({256, 1024}) * 0.05).set_requires_grad(true);

  spillway::SessionOptions options;
  options.rules = spillway::parse_rules(R"(
    [[rule]]
    scope = "mlp"
    action = "offload"
    [limits]
    host = "256 MiB"
    in_flight = "1 MiB"
    ahead = "1 MiB"
  )",
                                        "example.toml");
  spillway::Session session(std::move(options));
  session.register_fixed(up, spillway::FixedReason::kParameter);
  session.register_fixed(down, spillway::FixedReason::kParameter);

  for (int i = 0; i < 5; ++i) {
    const auto step = session.step();  // The first one records, the others carry the plan out.
    at::Tensor x = at::ones({512, 256});
    {
      const spillway::Scope scope("mlp");
      x = x + at::linear(at::gelu(at::linear(x, up)), down);
    }
    const at::Tensor loss = x.square().mean();
    loss.backward();
    std::cout << "step " << i << ": loss " << loss.item<float>() << '\n';
  }
  std::cout << session.report();
  return session.report().fallbacks.empty() ? 0 : 1;
}
