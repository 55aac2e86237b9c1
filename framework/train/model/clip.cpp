#include "train/model/clip.hpp"

#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "spillway/core/error.hpp"

namespace spillway::app {

GradientClipper::GradientClipper(const std::vector<std::int64_t>& positions, std::int64_t total,
                                 at::Device device)
    : positions_(at::tensor(positions, at::kLong).to(device)), total_(total) {
  std::set<std::int64_t> seen;
  for (const std::int64_t position : positions) {
    if (position < 0 || position >= total || !seen.insert(position).second) {
      throw InvalidArgument("clip", "positions below " + std::to_string(total) +
                                        " wanted, each once; found " + std::to_string(position));
    }
  }
}

at::Tensor GradientClipper::squared_norms(const std::vector<at::Tensor>& gradients) const {
  if (static_cast<std::int64_t>(gradients.size()) != positions_.numel()) {
    throw InvalidArgument("clip", std::to_string(positions_.numel()) + " gradients wanted, found " +
                                      std::to_string(gradients.size()));
  }
  const auto options = positions_.options().dtype(at::kDouble);
  at::Tensor all = at::zeros({total_}, options);
  if (gradients.empty()) return all;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(gradient.defined() ? at::linalg_vector_norm(gradient, 2, {}, false, at::kDouble)
                                       : at::zeros({}, options));
  }
  return all.index_copy_(0, positions_, at::stack(norms).square());
}

at::Tensor clip(const std::vector<at::Tensor>& gradients, const at::Tensor& squared_norms,
                double limit) {
  const at::NoGradGuard no_grad;
  at::Tensor norm = squared_norms.sum().sqrt();
  if (limit == 0) return norm;
  const at::Tensor factor = norm.reciprocal().mul(limit).clamp_max(1);
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) gradient.mul_(factor.to(gradient.scalar_type()));
  }
  return norm;
}

}  // namespace spillway::app
