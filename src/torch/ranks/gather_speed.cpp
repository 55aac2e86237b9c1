#include "torch/ranks/gather_speed.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

namespace spillway {
namespace {

/// Bytes of one rank: large enough that bandwidth matters more than latency.
constexpr std::int64_t kPart = 4 << 20;
/// The first one sets up connections.
constexpr int kGathers = 3;

double seconds_of_one(ShardGroup& group, const at::Tensor& whole, const at::Tensor& part) {
  (void)group.exchange(std::array<std::uint64_t, 1>{0})->read();  // A barrier.
  const auto begin = std::chrono::steady_clock::now();
  const auto gather = group.gather(whole, part);
  gather->wait();
  (void)whole.select(0, 0).cpu();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double gather_speed(ShardGroup& group, c10::Device device) {
  const at::NoGradGuard no_gradients;
  const at::Tensor part = at::zeros({kPart}, at::TensorOptions(at::kByte).device(device));
  const at::Tensor whole = at::zeros({kPart * group.size()}, part.options());
  double best = 0;
  for (int i = 0; i < kGathers; ++i) {
    const double seconds = std::max(seconds_of_one(group, whole, part), 1e-9);
    best = std::max(best, static_cast<double>(kPart * (group.size() - 1)) / seconds);
  }
  const auto all = group.exchange(std::array{std::bit_cast<std::uint64_t>(best)})->read();
  for (const std::uint64_t each : all) best = std::min(best, std::bit_cast<double>(each));
  return best;
}

}  // namespace spillway
