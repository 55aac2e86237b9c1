/// Trains a model without and with a session and compares the results bit for bit.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/torch/session.hpp"
#include "tiny_model.hpp"

namespace spillway::testing {

/// On the CPU, with windows so small that buffers of a tiny model are released.
inline SessionOptions with_rules(const std::string& rules) {
  using namespace spillway::literals;
  SessionOptions options;
  options.rules = parse_rules(rules, "test.toml");
  options.device = at::kCPU;
  options.small = 1_KiB;
  options.host = 64_MiB;
  options.offload_window = 64_KiB;
  options.prefetch_window = 128_KiB;
  return options;
}

inline SessionOptions offload_everything() {
  return with_rules("[[rule]]\naction = \"offload\"\n");
}

inline SessionOptions recompute_everything() {
  return with_rules("[[rule]]\naction = \"recompute\"\n");
}

/// The losses and gradients of `steps` steps. `forward` computes and backpropagates a step's loss.
template <typename Forward>
std::vector<at::Tensor> train(TinyModel& model, Session* session, int steps, Forward&& forward) {
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    model.zero_gradients();
    at::manual_seed(100 + static_cast<std::uint64_t>(i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      values.push_back(forward(step ? &*step : nullptr, i).detach().clone());
    }
    for (at::Tensor& gradient : model.gradients()) values.push_back(std::move(gradient));
    model.update();
  }
  return values;
}

/// Trains one model without and one with a session; the number of values that differ in a bit.
template <typename Forward>
int difference(const TinyOptions& shape, Session& session, int steps, Forward&& forward) {
  const Deterministic deterministic;
  TinyModel baseline(shape);
  const auto without = train(baseline, nullptr, steps,
                             [&](Step* step, int i) { return forward(baseline, step, i); });
  TinyModel managed(shape);
  session.register_model(managed);
  const auto with =
      train(managed, &session, steps, [&](Step* step, int i) { return forward(managed, step, i); });
  return count_different(without, with);
}

inline at::Tensor single_step(TinyModel& model, Step* /*step*/, int i) {
  at::Tensor loss = model.loss(model.tokens(2, 32, i));
  loss.backward();
  return loss;
}

/// Micro-batches whose backward follows at once; returns the sum of their losses.
inline at::Tensor accumulated_step(TinyModel& model, int i, int micro_batches) {
  at::Tensor total = at::zeros({});
  for (int micro = 0; micro < micro_batches; ++micro) {
    const at::Tensor loss = model.loss(model.tokens(1, 32, 10 * i + micro));
    loss.backward();
    total = total + loss.detach();
  }
  return total;
}

/// All forwards, then all backwards, as in GPipe.
inline at::Tensor gpipe_step(TinyModel& model, Step* step, int i, int micro_batches) {
  std::vector<at::Tensor> losses;
  for (int micro = 0; micro < micro_batches; ++micro) {
    if (step != nullptr) step->pass(0, micro);
    losses.push_back(model.loss(model.tokens(1, 32, 10 * i + micro)));
  }
  at::Tensor total = at::zeros({});
  for (const at::Tensor& loss : losses) {
    loss.backward();
    total = total + loss.detach();
  }
  return total;
}

}  // namespace spillway::testing
