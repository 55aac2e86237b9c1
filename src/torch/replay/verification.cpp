#include "torch/replay/verification.hpp"

#include <algorithm>
#include <utility>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>

namespace spillway {
namespace {

/// The same memory as integers: -0 and 0 differ, and a NaN equals itself.
at::Tensor as_bits(const at::Tensor& tensor) {
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  switch (real.element_size()) {
    case 1:
      return real.view(at::kByte);
    case 2:
      return real.view(at::kShort);
    case 4:
      return real.view(at::kInt);
    default:
      return real.view(at::kLong);
  }
}

}  // namespace

// Large tensors are compared in pieces: the mask of the whole would be half as large as a tensor of
// half precision.
at::Tensor Verification::differs(const at::Tensor& original, const at::Tensor& recomputed) {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kPiece = std::int64_t{1} << 24U;
  const at::Tensor a = as_bits(original);
  const at::Tensor b = as_bits(recomputed);
  if (a.numel() <= kPiece || !a.is_contiguous() || !b.is_contiguous()) return at::ne(a, b).any();
  const at::Tensor all_of_a = a.view(-1);
  const at::Tensor all_of_b = b.view(-1);
  std::vector<at::Tensor> pieces;
  for (std::int64_t begin = 0; begin < a.numel(); begin += kPiece) {
    const std::int64_t end = std::min(begin + kPiece, a.numel());
    pieces.push_back(at::ne(all_of_a.slice(0, begin, end), all_of_b.slice(0, begin, end)).any());
  }
  return at::stack(pieces).any();
}

void Verification::restore(const at::Tensor& recomputed, const at::Tensor& original) {
  const at::NoGradGuard no_gradients;
  at::Tensor to = recomputed;
  at::Tensor from = original;
  // An expanded tensor cannot be written as it is.
  for (std::int64_t i = 0; i < to.dim(); ++i) {
    if (to.stride(i) != 0 || to.size(i) < 2) continue;
    to = to.narrow(i, 0, 1);
    from = from.narrow(i, 0, 1);
  }
  if (at::has_internal_overlap(to) != at::MemOverlap::Yes) to.copy_(from);
}

std::set<Verification::Key> Verification::different(const std::vector<Comparison>& comparisons) {
  std::set<Key> found;
  if (comparisons.empty()) return found;
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> flags;
  for (const Comparison& each : comparisons) flags.push_back(each.differs);
  const at::Tensor differs = at::stack(flags).cpu();
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    if (differs.data_ptr<bool>()[i]) found.insert(comparisons[i].key);
  }
  return found;
}

std::vector<Verification::Failure> Verification::read() {
  const std::vector<Comparison> comparisons = std::exchange(comparisons_, {});
  const std::map<Key, Unrecomputable> unrecomputable = std::exchange(unrecomputable_, {});
  const std::set<Key> mismatched = different(comparisons);
  const auto is_own = [&](const std::set<Key>& made_from) {
    return std::none_of(made_from.begin(), made_from.end(), [&](const Key& other) {
      return unrecomputable.contains(other) || mismatched.contains(other);
    });
  };
  std::vector<Failure> failures;
  for (const auto& [key, entry] : unrecomputable) {
    failures.push_back({key, is_own(entry.made_from), "not recomputable: " + entry.reason});
  }
  for (const Key& key : mismatched) {
    if (unrecomputable.contains(key)) continue;
    Failure failure{key, true, "its recomputed bits differ"};
    for (const Comparison& each : comparisons) {
      if (each.key == key) failure.own = failure.own && is_own(each.made_from);
    }
    failures.push_back(failure);
  }
  return failures;
}

}  // namespace spillway
