/// Signatures: what identifies a call, a value or a saved tensor by how it was made; internal.
///
/// The same in every step, and in every process that registers its parameters in the same order.
/// Sizes and numbers among the arguments do not count, because they may change from step to step.
/// What the program made long before does not count either, so that a layer that is left out
/// changes no signature of the layers after it: a call that reads a parameter is identified by that
/// parameter, any other by the last value made among its arguments.
/// Different values may share a signature (the same operator on the same weight): they are trusted
/// together or not at all.
#pragma once

#include <cstdint>

namespace spillway {

/// 0: unknown.
using Signature = std::uint64_t;

/// Depends on the order of its arguments. Never 0. Not a digest (util/digest.hpp), because it is
/// computed a dozen times for each operator: a few instructions inline, and no call. Profiles and
/// plans store its values: another function here needs a new schema there.
[[nodiscard]] constexpr Signature combined(Signature first, std::uint64_t second) noexcept {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t kMix = 0xd6e8feb86659fd93;
  std::uint64_t mixed = first * kOdd + second;
  mixed = (mixed ^ (mixed >> 32U)) * kMix;
  mixed = (mixed ^ (mixed >> 32U)) * kMix;
  mixed ^= mixed >> 32U;
  return mixed == 0 ? kOdd : mixed;
}

/// What a value depends on.
enum class Origin {
  kConstant,    ///< On registered buffers or on nothing: a table made of numbers.
  kData,        ///< On what came from outside or was drawn at random, and on no parameter.
  kParameter,   ///< On parameters, and on no data: a parameter, a cast of one.
  kActivation,  ///< On both.
};

/// A storage that is never moved.
struct FixedStorage {
  bool parameter = false;    ///< Else a registered buffer.
  std::uint64_t number = 0;  ///< In the order of registration.
};

}  // namespace spillway
