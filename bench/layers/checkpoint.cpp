#include "checkpoint.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace spillway::bench {
namespace {

/// What backward needs besides the input.
struct LayerOf final : torch::CustomClassHolder {
  LayerOf(const Llama& of, int number) : model(&of), layer(number) {}

  [[nodiscard]] at::Tensor run(const at::Tensor& x) const { return model->run_layer(layer, x); }

  const Llama* model;
  int layer;
};

class CheckpointedLayer : public torch::autograd::Function<CheckpointedLayer> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<LayerOf>& layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return layer->run(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const auto layer =
        c10::static_intrusive_pointer_cast<LayerOf>(context->saved_data["layer"].toCapsule());
    const at::AutoGradMode with_gradients(true);
    const at::Tensor y = layer->run(x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpointed_loss(const Llama& model, const at::Tensor& tokens,
                             const at::Tensor& targets) {
  at::Tensor x = model.embed(tokens);
  for (int i = 0; i < model.shape().layers; ++i) {
    x = CheckpointedLayer::apply(x, c10::make_intrusive<LayerOf>(model, i));
  }
  return model.predict(x, targets);
}

}  // namespace spillway::bench
