#include "torch/graph/storage_digest.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace spillway {
namespace {

/// What is worked on at once: a digest takes a few times as much memory.
constexpr std::int64_t kPiece = 1 << 20;  // Words.
constexpr std::int64_t kFirstFactor = 0x2545F4914F6CDD1D;
constexpr std::int64_t kSecondFactor = 0x5851F42D4C957F2D;
constexpr std::int64_t kStride = 0x1E3779B97F4A7C15;

/// Sums over words that were mixed with their positions; whole numbers add up in any order.
at::Tensor digest_of_words(const at::Tensor& words, std::int64_t begin) {
  at::Tensor mixed = at::arange(begin, begin + words.numel(), words.options());
  mixed.mul_(kStride).bitwise_xor_(words).mul_(kFirstFactor);
  mixed.bitwise_xor_(mixed.bitwise_right_shift(29)).mul_(kSecondFactor);
  mixed.bitwise_xor_(mixed.bitwise_right_shift(32));
  return mixed.sum();
}

}  // namespace

at::Tensor digest_of(const c10::Storage& storage) {
  const at::NoGradGuard no_gradients;
  const auto options = at::TensorOptions(at::kLong).device(storage.device());
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  const std::int64_t count = bytes / 8;
  const at::Tensor words = at::empty({0}, options).set_(storage, 0, {count}, {1});
  at::Tensor digest = at::zeros({}, options).add_(bytes);
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    digest.add_(digest_of_words(words.narrow(0, begin, std::min(kPiece, count - begin)), begin));
  }
  if (const std::int64_t rest = bytes % 8; rest > 0) {
    const at::Tensor tail = at::empty({0}, options.dtype(at::kByte))
                                .set_(storage, count * 8, {rest}, {1})
                                .to(at::kLong);
    digest.add_(digest_of_words(tail, count));
  }
  return digest;
}

}  // namespace spillway
