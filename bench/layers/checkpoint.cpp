#include "checkpoint.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace spillway::bench {
namespace {

class CheckpointedLayer : public torch::autograd::Function<CheckpointedLayer> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Llama* model, std::int64_t layer) {
    context->save_for_backward({x});
    context->saved_data["model"] = reinterpret_cast<std::int64_t>(model);
    context->saved_data["layer"] = layer;
    return model->run_layer(static_cast<int>(layer), x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const auto* const model = reinterpret_cast<const Llama*>(context->saved_data["model"].toInt());
    const at::AutoGradMode with_gradients(true);
    const at::Tensor y =
        model->run_layer(static_cast<int>(context->saved_data["layer"].toInt()), x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpointed_loss(const Llama& model, const at::Tensor& tokens,
                             const at::Tensor& targets) {
  at::Tensor x = model.embed(tokens);
  for (int i = 0; i < model.shape().layers; ++i) {
    x = CheckpointedLayer::apply(x, &model, static_cast<std::int64_t>(i));
  }
  return model.predict(x, targets);
}

}  // namespace spillway::bench
