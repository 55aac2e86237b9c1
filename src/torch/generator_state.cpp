#include "generator_state.hpp"

#include <mutex>
#include <utility>

#include <ATen/ops/from_blob.h>

namespace spillway {
namespace {

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

GeneratorState::GeneratorState(at::Generator generator) : generator_(std::move(generator)) {
  const at::Tensor state = state_of(generator_).contiguous();
  const auto* const bytes = state.const_data_ptr<std::uint8_t>();
  state_.assign(bytes, bytes + state.numel());
}

GeneratorState::Applied::Applied(const GeneratorState& state)
    : generator_(state.generator_), before_(state_of(generator_)) {
  // Generators read it, and want a tensor for that.
  auto* const bytes = const_cast<std::uint8_t*>(state.state_.data());
  set_state(generator_,
            at::from_blob(bytes, {static_cast<std::int64_t>(state.state_.size())}, at::kByte));
}

GeneratorState::Applied::~Applied() { set_state(generator_, before_); }

}  // namespace spillway
