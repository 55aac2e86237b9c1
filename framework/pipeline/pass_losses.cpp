#include "spillway/pipeline/pass_losses.hpp"

#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace spillway {
namespace {

thread_local PassLosses* present = nullptr;

class Attach final : public torch::autograd::Function<Attach> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& value,
                            const at::Tensor& loss, const std::optional<at::Tensor>& weight) {
    // Not saved as autograd saves tensors: it is one number, and no activation.
    context->saved_data["weight"] =
        weight ? weight->to(loss.scalar_type()) : at::full_like(loss, 1);
    return value;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], context->saved_data["weight"].toTensor(), {}};
  }
};

}  // namespace

PassLosses::PassLosses(std::function<at::Tensor()> weight, double share, ExtraLosses& sums)
    : weight_(std::move(weight)), share_(share), sums_(sums) {
  present = this;
}

PassLosses::~PassLosses() { present = nullptr; }

at::Tensor with_loss(const at::Tensor& value, ExtraLoss kind, const at::Tensor& loss,
                     double coefficient) {
  std::optional<at::Tensor> weight;
  if (present != nullptr) {
    const at::NoGradGuard no_gradients;
    weight = present->weight_();
    at::Tensor& sum = present->sums_[static_cast<std::size_t>(kind)];
    const at::Tensor part = loss.detach().to(at::kDouble) * present->share_;
    sum = sum.defined() ? sum + part : part;
  }
  return Attach::apply(value, loss * coefficient, weight);
}

}  // namespace spillway
