#include "train/run/measured_model.hpp"

#include <chrono>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "train/model/device_memory.hpp"
#include "train/run/comparison.hpp"

namespace spillway::app {

MeasuredModel::MeasuredModel(const LlamaShape& shape)
    : model_(shape),
      tokens_(at::randint(shape.vocabulary, {1, shape.tokens},
                          at::TensorOptions().device(shape.device).dtype(at::kLong))) {}

MeasuredStep MeasuredModel::step(Session* session, const Loss& loss) {
  for (const at::Tensor& parameter : model_.parameters()) {
    if (parameter.grad().defined()) parameter.mutable_grad().zero_();
  }
  const std::uint64_t before = start_measuring_memory(tokens_.device());
  const auto begin = std::chrono::steady_clock::now();
  {
    std::optional<Step> scope;
    if (session != nullptr) scope.emplace(session->step());
    backward(forward(loss));
    if (scope) scope->end();  // Throws if gradients are wrong.
  }
  wait_for_device(tokens_.device());
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return {time.count(), Bytes(peak_memory(tokens_.device()) - before)};
}

at::Tensor MeasuredModel::forward(const Loss& loss) const {
  RECORD_USER_SCOPE("forward");
  return loss ? loss(model_, tokens_) : model_.loss(tokens_, tokens_);
}

void MeasuredModel::backward(const at::Tensor& loss) {
  RECORD_USER_SCOPE("backward");
  loss.backward();
}

int MeasuredModel::count_different(Session& session) {
  return count_different_gradients(model_.parameters(), session,
                                   [this](Session* used) { (void)step(used); });
}

int count_different_gradients(const std::vector<at::Tensor>& parameters, Session& session,
                              const std::function<void(Session*)>& step) {
  const DeterministicAlgorithms deterministic;
  step(nullptr);
  std::vector<at::Tensor> without;
  for (const at::Tensor& parameter : parameters) without.push_back(parameter.grad().clone());
  step(&session);
  int different = 0;
  for (std::size_t i = 0; i < without.size(); ++i) {
    different += at::equal(without[i], parameters[i].grad()) ? 0 : 1;
  }
  return different;
}

}  // namespace spillway::app
