#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "spillway/comm/random.hpp"
#include "spillway/tensor/tensor_parallel.hpp"

namespace spillway {
namespace {

/// A number that all members draw alike, and that is another one the next time.
std::uint64_t draw(at::Generator& generator) {
  if (generator.device().is_cpu()) return generator.get<at::CPUGeneratorImpl>()->random64();
  // CUDA's numbers are made of seed and offset, which only go forward in steps of four.
  const std::uint64_t offset = generator.get_offset();
  generator.set_offset(offset + 4);
  return mix_seeds({generator.current_seed(), offset});
}

}  // namespace

ShardedRandom::ShardedRandom(const TensorParallel& parallel, at::Device device) {
  if (!parallel.active()) return;
  generator_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator_->mutex());
  const std::uint64_t common = draw(*generator_);
  outside_ = generator_->get_state();
  generator_->set_current_seed(mix_seeds({common, static_cast<std::uint64_t>(parallel.rank())}));
}

ShardedRandom::~ShardedRandom() {
  if (!generator_) return;
  const std::lock_guard lock(generator_->mutex());
  generator_->set_state(outside_);
}

}  // namespace spillway
