#include "pipeline/pipeline_step.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "pipeline/autocast.hpp"
#include "spillway/comm/random.hpp"
#include "spillway/core/error.hpp"
#include "spillway/torch/untimed_wait.hpp"

namespace spillway {
namespace {

/// Equal for micro-batches of equal sizes, on every stage.
std::uint64_t signature_of(const MicroBatch& batch, bool training) {
  std::uint64_t mixed = training ? 1 : 0;
  for (const at::Tensor& input : batch.inputs) {
    mixed = mix_seeds({mixed, static_cast<std::uint64_t>(input.dim())});
    for (const std::int64_t size : input.sizes()) {
      mixed = mix_seeds({mixed, static_cast<std::uint64_t>(size)});
    }
  }
  return mixed;
}

std::string text_of(const TensorShapes& shapes) {
  std::string text;
  for (const TensorShape& shape : shapes) {
    text += text.empty() ? "[" : ", [";
    for (std::size_t i = 0; i < shape.sizes.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(shape.sizes[i]);
    }
    text += std::string("] ") + c10::toString(shape.dtype);
  }
  return text;
}

TensorShapes differentiable(const TensorShapes& shapes) {
  TensorShapes chosen;
  for (const TensorShape& shape : shapes) {
    if (shape.differentiable) chosen.push_back(shape);
  }
  return chosen;
}

/// Leaves of a new graph.
Tensors as_inputs(const Tensors& tensors, const TensorShapes& shapes) {
  Tensors leaves;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    leaves.push_back(tensors[i].detach().set_requires_grad(shapes[i].differentiable &&
                                                           at::GradMode::is_enabled()));
  }
  return leaves;
}

template <typename Map>
auto take(Map& map, const std::pair<int, int>& key) {
  const auto found = map.find(key);
  if (found == map.end()) {
    throw InvalidArgument("pipeline", "the schedule asks for chunk " + std::to_string(key.first) +
                                          ", micro-batch " + std::to_string(key.second) +
                                          " before what it needs is there");
  }
  auto value = std::move(found->second);
  map.erase(found);
  return value;
}

}  // namespace

PipelineStep::PipelineStep(PipelineRunner::State& state, std::span<const MicroBatch> batches,
                           std::vector<PipelineAction> actions, Step* pass_step,
                           at::Tensor loss_scale)
    : state_(state),
      model_(state.model),
      batches_(batches),
      actions_(std::move(actions)),
      pass_step_(pass_step),
      loss_scale_(std::move(loss_scale)),
      device_(state.model.options().device),
      backwards_left_(static_cast<std::size_t>(state.model.options().chunks)),
      losses_(batches.size()) {
  const bool training = at::GradMode::is_enabled();
  for (const MicroBatch& batch : batches) signatures_.push_back(signature_of(batch, training));
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const PipelineAction& action = actions_[i];
    if (action.kind == PipelineActionKind::kReceiveActivation) {
      activations_.actions.push_back(i);
      all_known_ = all_known_ && known_shapes(action) != nullptr;
    }
    if (action.kind == PipelineActionKind::kReceiveGradient) gradients_.actions.push_back(i);
    if (action.kind == PipelineActionKind::kBackward) {
      ++backwards_left_[static_cast<std::size_t>(action.chunk)];
    }
  }
}

void PipelineStep::run() {
  for (const PipelineAction& action : actions_) {
    switch (action.kind) {
      case PipelineActionKind::kForward:
        forward(action);
        break;
      case PipelineActionKind::kBackward:
        backward(action);
        break;
      case PipelineActionKind::kSendActivation:
        send_activation(action);
        break;
      case PipelineActionKind::kSendGradient:
        send_gradient(action);
        break;
      case PipelineActionKind::kReceiveActivation:
        receive_activation(action);
        break;
      case PipelineActionKind::kReceiveGradient:
        receive_gradient(action);
        break;
    }
  }
}

void PipelineStep::forward(const PipelineAction& action) {
  const Key key{action.chunk, action.micro_batch};
  const auto& batch = batches_[static_cast<std::size_t>(action.micro_batch)];
  const bool first = model_.is_first(action.chunk);
  begin_pass(key);
  const Tensors inputs = first ? batch.inputs : take(inputs_, key);
  post_ahead();
  Tensors outputs;
  {
    const AutocastRegion autocast(device_.type(), state_.options.autocast);
    const std::uint64_t seed =
        mix_seeds({model_.options().seed, static_cast<std::uint64_t>(state_.step),
                   static_cast<std::uint64_t>(state_.groups.data.rank()),
                   static_cast<std::uint64_t>(action.micro_batch)});
    const auto weight = [&] {
      return weight_of(action.micro_batch, at::TensorOptions(device_).dtype(at::kFloat));
    };
    const PassLosses losses(weight, share_of(action.micro_batch), extra_);
    outputs = model_.forward(action.chunk, inputs, seed);
    if (model_.is_last(action.chunk)) outputs = {model_.loss(outputs.at(0), batch.target)};
  }
  if (at::GradMode::is_enabled()) {
    PendingBackward& pending = pending_backwards_[key];
    if (!first) pending.inputs = inputs;
    pending.shapes = shapes_of(outputs);
    for (const at::Tensor& output : outputs) {
      if (output.requires_grad()) {
        pending.outputs.push_back(torch::autograd::impl::gradient_edge(output));
      }
    }
  }
  if (model_.is_last(action.chunk)) {
    losses_[static_cast<std::size_t>(action.micro_batch)] = outputs[0].detach();
    return;
  }
  if (model_.options().num_stages == 1) {
    inputs_[{action.chunk + 1, action.micro_batch}] = as_inputs(outputs, shapes_of(outputs));
  } else {
    outputs_[key] = std::move(outputs);
  }
}

void PipelineStep::backward(const PipelineAction& action) {
  const Key key{action.chunk, action.micro_batch};
  const auto chunk = static_cast<std::size_t>(action.chunk);
  begin_backward();
  PendingBackward pending = take(pending_backwards_, key);
  Tensors gradients;
  if (model_.is_last(action.chunk)) {
    gradients = {weight_of(action.micro_batch,
                           losses_[static_cast<std::size_t>(action.micro_batch)].options())};
  } else {
    gradients = take(output_gradients_, key);
  }
  post_ahead();
  const bool last = --backwards_left_[chunk] == 0;
  if (last) {
    for (GradientBuckets& buckets : state_.buckets) buckets.arm(action.chunk);
  }
  if (!pending.outputs.empty()) {
    torch::autograd::Engine::get_default_engine().execute(
        pending.outputs, gradients, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true);
  }
  if (last) {
    for (GradientBuckets& buckets : state_.buckets) buckets.flush(action.chunk);
  }
  if (model_.is_first(action.chunk)) return;
  Tensors back;
  for (const at::Tensor& input : pending.inputs) {
    if (!input.requires_grad()) continue;
    back.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input));
  }
  if (model_.options().num_stages == 1) {
    output_gradients_[{action.chunk - 1, action.micro_batch}] = std::move(back);
  } else {
    input_gradients_[key] = std::move(back);
  }
}

std::pair<int, std::uint64_t> PipelineStep::border(const PipelineAction& action) const {
  const int part = model_.part(action.chunk);
  const bool incoming = action.kind == PipelineActionKind::kReceiveActivation;
  return {incoming ? part - 1 : part, signatures_[static_cast<std::size_t>(action.micro_batch)]};
}

void PipelineStep::send_activation(const PipelineAction& action) {
  const Tensors outputs = take(outputs_, {action.chunk, action.micro_batch});
  const TensorShapes shapes = shapes_of(outputs);
  const auto [known, first_time] = state_.shapes.emplace(border(action), shapes);
  if (first_time || state_.options.shapes_every_time) {
    state_.activations.send_shapes(shapes, action.peer, action.tag);
  } else if (known->second != shapes) {
    throw InvalidArgument(
        "pipeline", model_.describe(action.chunk) + " gave " + text_of(known->second) +
                        " before and now " + text_of(shapes) +
                        " for micro-batches of equal sizes; the next stage does not expect that: "
                        "set shapes_every_time");
  }
  make_room(state_.activations);
  state_.activations.send(outputs, action.peer, action.tag);
}

void PipelineStep::make_room(StageChannel& channel) const {
  if (all_known_) {
    untimed_wait([&] { channel.settle(1); });
  } else {
    // While a stage learns shapes, it posts no receives early: two that wait for each other's would
    // never end. A later step has one more message under way, the one that it expects: sessions
    // record this step, and plan for those.
    channel.drop_what_left(2);
  }
}

void PipelineStep::send_gradient(const PipelineAction& action) {
  make_room(state_.gradients);
  state_.gradients.send(take(input_gradients_, {action.chunk, action.micro_batch}), action.peer,
                        action.tag);
}

const TensorShapes* PipelineStep::known_shapes(const PipelineAction& action) const {
  if (action.kind == PipelineActionKind::kReceiveGradient) {
    const auto pending = pending_backwards_.find({action.chunk, action.micro_batch});
    return pending == pending_backwards_.end() ? nullptr : &pending->second.shapes;
  }
  if (state_.options.shapes_every_time) return nullptr;
  const auto found = state_.shapes.find(border(action));
  return found == state_.shapes.end() ? nullptr : &found->second;
}

void PipelineStep::post_ahead() {
  const auto post = [&](Expected& expected, const StageChannel& channel) {
    if (expected.posted > expected.taken || expected.posted == expected.actions.size()) return;
    const PipelineAction& action = actions_[expected.actions[expected.posted]];
    const TensorShapes* shapes = known_shapes(action);
    if (shapes == nullptr) return;
    const bool gradient = action.kind == PipelineActionKind::kReceiveGradient;
    expected.incoming =
        channel.receive(gradient ? differentiable(*shapes) : *shapes, action.peer, action.tag);
    ++expected.posted;
  };
  post(activations_, state_.activations);
  post(gradients_, state_.gradients);
}

void PipelineStep::begin_pass(const Key& key) {
  if (pass_step_ == nullptr || begun_ == key) return;
  begun_ = key;
  pass_step_->pass(key.first, key.second);
}

void PipelineStep::begin_backward() {
  if (pass_step_ == nullptr || !begun_) return;
  begun_.reset();
  pass_step_->backward();
}

void PipelineStep::receive_activation(const PipelineAction& action) {
  begin_pass({action.chunk, action.micro_batch});
  if (activations_.posted == activations_.taken && known_shapes(action) == nullptr) {
    TensorShapes shapes;
    untimed_wait([&] { shapes = state_.activations.receive_shapes(action.peer, action.tag); });
    activations_.incoming = state_.activations.receive(shapes, action.peer, action.tag);
    ++activations_.posted;
    state_.shapes[border(action)] = std::move(shapes);
  } else {
    post_ahead();
  }
  ++activations_.taken;
  Tensors received;
  untimed_wait([&] { received = activations_.incoming.take(device_); });
  inputs_[{action.chunk, action.micro_batch}] =
      as_inputs(received, state_.shapes.at(border(action)));
}

void PipelineStep::receive_gradient(const PipelineAction& action) {
  begin_backward();
  post_ahead();
  ++gradients_.taken;
  untimed_wait([&] {
    output_gradients_[{action.chunk, action.micro_batch}] = gradients_.incoming.take(device_);
  });
}

double PipelineStep::share_of(int micro_batch) const {
  double all = 0;
  for (const MicroBatch& batch : batches_) all += static_cast<double>(batch.target.numel());
  const at::Tensor& target = batches_[static_cast<std::size_t>(micro_batch)].target;
  return static_cast<double>(target.numel()) / all;
}

at::Tensor PipelineStep::weight_of(int micro_batch, const at::TensorOptions& options) const {
  at::Tensor weight = at::full({}, share_of(micro_batch) / state_.groups.data.size(), options);
  return loss_scale_.defined() ? weight * loss_scale_.to(weight.scalar_type()) : weight;
}

at::Tensor PipelineStep::loss() const {
  at::Tensor sum;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (!losses_[i].defined()) return {};
    const at::Tensor part = losses_[i].to(at::kDouble) * share_of(static_cast<int>(i));
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace spillway
