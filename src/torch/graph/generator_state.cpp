#include "torch/graph/generator_state.hpp"

#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

namespace spillway {

GeneratorState::GeneratorState(at::Generator generator)
    : generator_(std::move(generator)), state_(take(generator_)) {}

GeneratorState::State GeneratorState::take(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  if (generator.device().is_cpu()) {
    auto* const cpu = generator.get<at::CPUGeneratorImpl>();
    return OnCpu{cpu->engine(), cpu->next_float_normal_sample(), cpu->next_double_normal_sample()};
  }
  const at::Tensor state = generator.get_state().contiguous();
  const auto* const bytes = state.const_data_ptr<std::uint8_t>();
  return std::vector<std::uint8_t>(bytes, bytes + state.numel());
}

void GeneratorState::apply() const {
  const std::lock_guard lock(generator_.mutex());
  if (const auto* const state = std::get_if<OnCpu>(&state_)) {
    auto* const cpu = generator_.get<at::CPUGeneratorImpl>();
    cpu->set_engine(state->engine);
    cpu->set_next_float_normal_sample(state->next_float);
    cpu->set_next_double_normal_sample(state->next_double);
    return;
  }
  // The generator only reads it, but takes a tensor.
  const auto& bytes = std::get<std::vector<std::uint8_t>>(state_);
  auto* const data = const_cast<std::uint8_t*>(bytes.data());
  generator_.set_state(at::from_blob(data, {static_cast<std::int64_t>(bytes.size())}, at::kByte));
}

GeneratorState::Applied::~Applied() {
  try {
    restore();
  } catch (...) {
    return;
  }
}

void GeneratorState::Applied::restore() {
  if (restored_) return;
  before_.apply();
  restored_ = true;
}

}  // namespace spillway
