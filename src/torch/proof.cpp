#include "proof.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>

namespace spillway {
namespace {

/// The same memory as whole numbers: -0 and 0 differ, and a NaN equals itself.
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

void Proof::compare(const Key& key, const at::Tensor& original, const at::Tensor& remade,
                    std::set<Key> made_from) {
  const at::NoGradGuard no_gradients;
  comparisons_.push_back(
      {key, at::ne(as_bits(original), as_bits(remade)).any(), std::move(made_from)});
}

std::vector<Proof::Failure> Proof::read() {
  const std::vector<Comparison> comparisons = std::exchange(comparisons_, {});
  std::vector<Failure> failures;
  for (const auto& [key, reason] : std::exchange(refused_, {})) {
    failures.push_back({key, true, "not recomputable: " + reason});
  }
  if (comparisons.empty()) return failures;
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> flags;
  for (const Comparison& each : comparisons) flags.push_back(each.differs);
  const at::Tensor differs = at::stack(flags).cpu();
  std::set<Key> different;
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    if (differs.data_ptr<bool>()[i]) different.insert(comparisons[i].key);
  }
  for (const Key& key : different) {
    Failure failure{key, true, "recomputed it had other bits"};
    for (const Comparison& each : comparisons) {
      if (each.key != key) continue;
      failure.own = failure.own && std::none_of(each.made_from.begin(), each.made_from.end(),
                                                [&](const Key& other) {
                                                  return other != key && different.contains(other);
                                                });
    }
    failures.push_back(failure);
  }
  return failures;
}

}  // namespace spillway
