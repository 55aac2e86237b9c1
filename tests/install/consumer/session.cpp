#include <iostream>

#include <ATen/ATen.h>

#include "spillway/spillway.hpp"

int main() {
  spillway::SessionOptions options;
  options.rules = spillway::parse_rules("[[rule]]\naction = \"offload\"\n", "rules");
  options.offload_window = spillway::Bytes(0);
  options.device = at::kCPU;
  spillway::Session session(options);
  const at::Tensor weight = at::ones({256, 256}).set_requires_grad(true);
  for (int i = 0; i < 2; ++i) {
    const auto step = session.step();
    const spillway::Scope scope("layer");
    const at::Tensor loss = weight.exp().sin().cos().exp().sum();
    loss.backward();
  }
  if (session.report().bytes_out == spillway::Bytes(0)) return 1;

  // The planner finds its solver.
  spillway::SessionOptions planned;
  planned.budget = spillway::Budget::share(0.8);
  planned.plan_in_background = false;
  planned.device = at::kCPU;
  spillway::Session within(planned);
  {
    const auto step = within.step();
    at::Tensor value = weight;
    for (int i = 0; i < 8; ++i) value = value.sin();
    value.sum().backward();
  }
  if (within.report().budget->plans == 0) {
    std::cout << within.report().budget->problem << '\n';
    return 1;
  }
  std::cout << "consumer: " << spillway::to_string(spillway::parse_bytes("8 GiB")) << '\n';
}
