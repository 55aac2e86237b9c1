#include "spillway/comm/random.hpp"

#include <mutex>

#include <ATen/Context.h>

namespace spillway {
namespace {

/// The finalizer of SplitMix64: every bit of the input changes half of the output's.
std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

void seed(const at::Generator& generator, std::uint64_t value) {
  at::Generator same = generator;
  const std::lock_guard lock(same.mutex());
  same.set_current_seed(value);
}

}  // namespace

std::uint64_t mix_seeds(std::initializer_list<std::uint64_t> numbers) noexcept {
  std::uint64_t mixed = numbers.size();
  for (const std::uint64_t number : numbers) mixed = scramble(mixed ^ scramble(number));
  return mixed;
}

void seed_generators(c10::Device device, std::uint64_t value) {
  seed(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)), value);
  if (!device.is_cpu()) seed(at::globalContext().defaultGenerator(device), value);
}

}  // namespace spillway
