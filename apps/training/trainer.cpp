#include "training/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>

#include <ATen/ATen.h>

#include "training/device_memory.hpp"

namespace spillway::app {

Trainer::Trainer(const LlamaShape& shape)
    : model_(shape),
      optimizer_(model_.parameters(), torch::optim::AdamWOptions(1e-3)),
      successor_(static_cast<std::size_t>(shape.vocabulary)) {
  for (const at::Tensor& parameter : model_.parameters()) {
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  std::iota(successor_.begin(), successor_.end(), 0);
  std::mt19937_64 random(shape.seed);
  for (std::size_t i = successor_.size() - 1; i > 0; --i) {
    std::swap(successor_[i], successor_[random() % (i + 1)]);
  }
}

at::Tensor Trainer::next_text() {
  const LlamaShape& shape = model_.shape();
  std::seed_seq seed{shape.seed, static_cast<std::uint64_t>(steps_) + 1};
  std::mt19937_64 random(seed);
  const auto any = [&] { return static_cast<std::int64_t>(random() % successor_.size()); };
  std::vector<std::int64_t> text{any()};
  while (text.size() <= static_cast<std::size_t>(shape.tokens)) {
    const bool surprise = random() % 8 == 0;
    text.push_back(surprise ? any() : successor_[static_cast<std::size_t>(text.back())]);
  }
  return at::tensor(text, at::kLong).view({1, -1}).to(shape.device);
}

TrainingStep Trainer::step(Session* session) {
  const at::Device device = model_.shape().device;
  const at::Tensor text = next_text();
  const std::int64_t length = model_.shape().tokens;
  const at::Tensor tokens = text.narrow(1, 0, length);
  const at::Tensor targets = text.narrow(1, 1, length);
  optimizer_.zero_grad(/*set_to_none=*/false);
  ++steps_;

  TrainingStep result;
  result.before = Bytes(start_measuring_memory(device));
  const auto begin = std::chrono::steady_clock::now();
  {
    std::optional<Step> step;
    if (session != nullptr) step.emplace(session->step());
    const at::Tensor loss = model_.loss(tokens, targets);
    loss.backward();
    result.loss = loss.detach();
  }
  wait_for_device(device);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  result.milliseconds = time.count();
  result.peak = Bytes(peak_memory(device));
  result.loss = result.loss.cpu();
  optimizer_.step();
  return result;
}

std::vector<at::Tensor> Trainer::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model_.parameters()) {
    gradients.push_back(parameter.grad().cpu().clone());
  }
  return gradients;
}

}  // namespace spillway::app
