#include "torch/record/copy_checks.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace spillway {
namespace {

constexpr int kSlots = 1 << 14;

}  // namespace

std::string_view to_string(CopyFault fault) {
  switch (fault) {
    case CopyFault::kSourceChanged:
      return "it was written in place after autograd had saved it, unseen by autograd";
    case CopyFault::kCopyDiffers:
      return "it came back from host memory with other bits";
  }
  return {};
}

void CopyChecks::prepare(at::Device device) {
  if (static_cast<std::size_t>(taken_) < numbers_.size() * kSlots) return;
  const at::NoGradGuard no_gradients;
  numbers_.push_back(at::empty({kSlots}, at::TensorOptions(at::kLong).device(device)));
}

CopyChecks::Number CopyChecks::take(at::Device device) {
  prepare(device);
  const at::NoGradGuard no_gradients;
  const Slot slot = taken_++;
  return {slot, numbers_[static_cast<std::size_t>(slot / kSlots)].select(0, slot % kSlots)};
}

std::vector<CopyChecks::Failure> CopyChecks::read() {
  const std::vector<Comparison> comparisons = std::exchange(comparisons_, {});
  taken_ = 0;
  if (comparisons.empty()) return {};
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> host;
  for (const at::Tensor& each : numbers_) host.push_back(each.cpu());
  const auto number = [&](Slot slot) {
    return host[static_cast<std::size_t>(slot / kSlots)]
        .const_data_ptr<std::int64_t>()[slot % kSlots];
  };
  std::vector<Failure> failures;
  for (const Comparison& each : comparisons) {
    if (each.now >= 0 && number(each.saved) == number(each.now)) continue;
    const bool known =
        each.failure.key.buffer >= 0 && std::ranges::find(failures, each.failure) != failures.end();
    if (!known) failures.push_back(each.failure);
  }
  return failures;
}

}  // namespace spillway
