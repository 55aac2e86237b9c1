#include "generator_state.hpp"

#include <mutex>
#include <utility>

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

GeneratorState::GeneratorState(at::Generator generator)
    : generator_(std::move(generator)), state_(state_of(generator_)) {}

GeneratorState::Applied::Applied(const GeneratorState& state)
    : generator_(state.generator_), before_(state_of(generator_)) {
  set_state(generator_, state.state_);
}

GeneratorState::Applied::~Applied() { set_state(generator_, before_); }

}  // namespace spillway
