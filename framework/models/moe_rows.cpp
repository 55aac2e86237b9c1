#include "models/moe_rows.hpp"

#include <optional>

#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// Autograd takes undefined tensors as such only.
using MaybeTensor = std::optional<at::Tensor>;

at::Tensor take(const at::Tensor& x, const at::Tensor& index, const at::Tensor& none) {
  at::Tensor rows = at::index_select(x, 0, index);
  if (none.defined()) rows.masked_fill_(none.unsqueeze(-1), 0);
  return rows;
}

/// out[i] = x[index[i]]; backward: the sum over j < fan of gradient[back[t * fan + j]].
class TakeRows final : public torch::autograd::Function<TakeRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& index,
                            const MaybeTensor& empty, const at::Tensor& back,
                            const MaybeTensor& lost, std::int64_t fan) {
    context->save_for_backward({back, *lost});
    context->saved_data["fan"] = fan;
    return take(x, index, *empty);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::int64_t fan = context->saved_data["fan"].toInt();
    at::Tensor gradient = take(gradients[0].contiguous(), saved[0], saved[1]);
    if (fan > 1) gradient = gradient.view({-1, fan, gradient.size(-1)}).sum(1);
    return {gradient, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor spread_rows(const at::Tensor& x, const at::Tensor& index, const at::Tensor& empty,
                       const at::Tensor& back, const at::Tensor& lost, std::int64_t fan) {
  return TakeRows::apply(x, index, MaybeTensor(empty), back, MaybeTensor(lost), fan);
}

at::Tensor collect_rows(const at::Tensor& x, const at::Tensor& back, const at::Tensor& lost,
                        const at::Tensor& position, const at::Tensor& empty) {
  return TakeRows::apply(x, back, MaybeTensor(lost), position, MaybeTensor(empty), std::int64_t{1});
}

}  // namespace spillway
