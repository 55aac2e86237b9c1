/// A random generator's state before a call; internal. Allocates no tensors, which would count as
/// the model's.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

namespace spillway {

class GeneratorState {
 public:
  /// Copies the state. On CUDA that is a seed and an offset, without synchronisation.
  explicit GeneratorState(at::Generator generator);

  /// Puts the generator into that state until restore(), and back afterwards.
  class Applied;

 private:
  struct OnCpu {
    at::mt19937 engine;
    std::optional<float> next_float;
    std::optional<double> next_double;
  };
  using State = std::variant<OnCpu, std::vector<std::uint8_t>>;

  [[nodiscard]] static State take(at::Generator& generator);
  void apply() const;

  mutable at::Generator generator_;
  State state_;
};

class GeneratorState::Applied {
 public:
  explicit Applied(const GeneratorState& state) : before_(state.generator_) { state.apply(); }
  Applied(const Applied&) = delete;
  Applied& operator=(const Applied&) = delete;
  /// Without restore(), where an exception is on its way: the generator's own is not thrown.
  ~Applied();

  /// Errors: those of the generator; it is in an unknown state then.
  void restore();

 private:
  GeneratorState before_;
  bool restored_ = false;
};

}  // namespace spillway
