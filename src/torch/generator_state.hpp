/// A random generator as it was before a call; internal.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace spillway {

class GeneratorState {
 public:
  /// Takes the state. On CUDA that is a seed and an offset: nothing is waited for.
  explicit GeneratorState(at::Generator generator);

  /// While it lives the generator is in that state; then in the one it was in before.
  class Applied {
   public:
    explicit Applied(const GeneratorState& state);
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;
    ~Applied();

   private:
    at::Generator generator_;
    at::Tensor before_;
  };

 private:
  at::Generator generator_;
  std::vector<std::uint8_t> state_;  // No tensor: it is not the model's memory.
};

}  // namespace spillway
