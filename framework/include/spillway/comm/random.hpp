/// Random numbers that follow from where in the training they are wanted, not from what ran before:
/// the same on every layout of stages.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <c10/core/Device.h>

namespace spillway {

/// A seed made of several numbers; another order or another number gives another seed.
[[nodiscard]] std::uint64_t mix_seeds(std::initializer_list<std::uint64_t> numbers) noexcept;

/// Seeds torch's default generator of that device, and that of the CPU. The host does not wait.
/// Threads: as the generators, which have locks.
void seed_generators(c10::Device device, std::uint64_t seed);

}  // namespace spillway
