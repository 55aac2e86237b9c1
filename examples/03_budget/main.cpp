/// Trains a small model within a budget of memory, and shows what was predicted and what happened.
#include <exception>
#include <iostream>
#include <vector>

#include <ATen/ATen.h>

#include "spillway/spillway.hpp"

namespace {

/// Stands for any model: a torch::nn::Module is registered in the same way.
struct Model {
  at::Tensor up = (at::randn({1024, 256}) * 0.05).set_requires_grad(true);
  at::Tensor down = (at::randn({256, 1024}) * 0.05).set_requires_grad(true);

  [[nodiscard]] std::vector<at::Tensor> parameters() const { return {up, down}; }
  [[nodiscard]] std::vector<at::Tensor> buffers() const { return {}; }

  [[nodiscard]] at::Tensor forward(at::Tensor x) const {
    for (int i = 0; i < 4; ++i) {
      const spillway::Scope scope("layers." + std::to_string(i));
      x = x + at::linear(at::gelu(at::linear(x, up)), down);
    }
    return x.square().mean();
  }
};

int run(spillway::Bytes budget) {
  const Model model;
  const std::vector<at::Tensor> data(6, at::ones({512, 256}));

  spillway::SessionOptions options;
  options.budget = budget;  // 8_GiB, Budget::share(0.33) or Budget::automatic()
  spillway::Session session(options);
  session.register_model(model);
  for (const auto& batch : data) {
    auto step = session.step();  // The first one records; then the plan is made and executed.
    model.forward(batch).backward();
  }
  std::cout << session.report();
  return session.report().fallbacks.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(spillway::parse_bytes(argc > 1 ? argv[1] : "12 MiB"));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
