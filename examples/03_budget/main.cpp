/// Trains a small model within a budget of memory, and shows what was predicted and what happened.
/// Exit code: 0 if a step that carried out the plan was measured and stayed within the budget,
/// without a fallback, and all gradients are equal to those of the baseline to the bit.
#include <algorithm>
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

/// The sums of all gradients since the last call.
std::vector<at::Tensor> take_gradients(const Model& model) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor& parameter : model.parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

bool equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.equal(b); });
}

int run(spillway::Bytes budget) {
  const Model model;
  const std::vector<at::Tensor> data(8, at::ones({512, 256}));
  for (const auto& batch : data) model.forward(batch).backward();  // The baseline.
  const std::vector<at::Tensor> expected = take_gradients(model);

  spillway::SessionOptions options;
  options.budget = budget;  // 8_GiB, Budget::share(0.33) or Budget::automatic()
  spillway::Session session(options);
  session.register_model(model);
  for (const auto& batch : data) {
    auto step = session.step();  // The first one records; then the plan is made and executed.
    model.forward(batch).backward();
    step.end();  // Throws if the gradients are wrong. An optimizer's step would come now.
  }
  std::cout << session.report();

  const bool same = equal(take_gradients(model), expected);
  const spillway::SessionReport report = session.report();
  const spillway::Bytes peak = report.budget->measured_peak;
  const bool within = peak > spillway::Bytes(0) && peak <= report.budget->budget;
  std::cout << "gradients " << (same ? "equal to the bit" : "DIFFER") << ", peak of a step "
            << (within ? "within" : "NOT within") << " the budget\n";
  return same && within && report.fallbacks.empty() ? 0 : 1;
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
