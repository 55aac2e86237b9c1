#include "spillway/models/moe.hpp"

#include <ATen/ATen.h>

#include "models/grouped_linear.hpp"
#include "models/moe_dispatch.hpp"
#include "models/parallel_check.hpp"
#include "models/weights.hpp"
#include "spillway/comm/random.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/layer_choice.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

/// Linear layers by `linear`, and what is between them. Scopes: fc1, act, fc2.
template <typename Linear>
at::Tensor widen(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& up,
                 const Linear& linear) {
  at::Tensor gated;
  at::Tensor wide;
  {
    const Scope fc1("fc1");
    if (gate.defined()) gated = linear(x, gate);
    wide = linear(x, up);
  }
  const Scope act("act");
  return gate.defined() ? at::silu(gated) * wide : at::gelu(wide, "tanh");
}

/// A module for parts that tensor ranks have.
class Parts : public ShardedModule {
 public:
  using ShardedModule::add_part;
  using ShardedModule::ShardedModule;
};

/// Of the experts of the slice, each by its number.
at::Tensor expert_values(const ExpertSlice& slice, at::IntArrayRef sizes, double scale,
                         std::uint64_t which, const at::TensorOptions& options) {
  const at::NoGradGuard no_gradients;
  const at::Device device = options.device();
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  const std::uint64_t seed = at::globalContext().defaultGenerator(at::kCPU).current_seed();
  std::vector<at::Tensor> each;
  for (int i = 0; i < slice.count; ++i) {
    const auto expert = static_cast<std::uint64_t>(slice.first) + static_cast<std::uint64_t>(i);
    generator.set_current_seed(mix_seeds({seed, which, expert}));
    each.push_back(at::randn(sizes, generator, options).mul_(scale));
  }
  return at::stack(each);
}

}  // namespace

void check(const MoeShape& shape) {
  require(shape.experts >= 0 && shape.ffn >= 0 && shape.shared_ffn >= 0,
          "experts = " + text(shape.experts) + ", expert_ffn = " + text(shape.ffn) +
              ", shared_expert_ffn = " + text(shape.shared_ffn) + ": at least 0 wanted");
  if (shape.experts == 0) return;
  require(shape.chosen >= 1 && shape.chosen <= shape.experts,
          "chosen_experts = " + text(shape.chosen) + " of experts = " + text(shape.experts) +
              ": at least 1 and not more than there are wanted");
  require(shape.experts % shape.group.size() == 0,
          "experts = " + text(shape.experts) + " cannot be spread evenly over " +
              text(shape.group.size()) + " ranks; give a multiple");
  require(shape.capacity_factor >= 0 && shape.router.aux_loss >= 0 && shape.router.z_loss >= 0,
          "capacity_factor = " + std::to_string(shape.capacity_factor) +
              ", aux_loss = " + std::to_string(shape.router.aux_loss) +
              ", z_loss = " + std::to_string(shape.router.z_loss) + ": at least 0 wanted");
  (void)has_experts(shape, 0, 1);
}

bool has_experts(const MoeShape& shape, int layer, int layers) {
  return shape.experts > 0 && is_chosen_layer(shape.layers, layer, layers);
}

ExpertWeights::ExpertWeights(const MoeShape& moe, std::int64_t ffn, const MlpShape& mlp)
    : ShardedModule(mlp.parallel) {
  slice_.count = moe.experts / moe.group.size();
  slice_.first = slice_.count * moe.group.rank();
  const auto in = [&](std::uint64_t which) {
    return expert_values(slice_, {ffn, mlp.hidden}, mlp.scale, which, mlp.options);
  };
  if (mlp.gated) {
    const auto first = std::make_shared<Parts>(mlp.parallel);
    gate_ = first->add_part("gate", in(0), 1);
    up_ = first->add_part("up", in(1), 1);
    register_module("fc1", first);
  } else {
    up_ = add_part("fc1", in(1), 1);
  }
  fc2_ = add_part("fc2", expert_values(slice_, {mlp.hidden, ffn}, mlp.output_scale, 2, mlp.options),
                  2);
}

at::Tensor ExpertWeights::forward(const at::Tensor& x,
                                  const std::vector<std::int64_t>& counts) const {
  const auto linear = [&](const at::Tensor& rows, const at::Tensor& weight) {
    return grouped_linear(rows, weight, counts);
  };
  const at::Tensor wide = widen(x, gate_, up_, linear);
  const Scope fc2("fc2");
  return linear(wide, fc2_);
}

at::Tensor ExpertWeights::forward(const at::Tensor& x) const {
  const auto linear = [](const at::Tensor& rows, const at::Tensor& weight) {
    return at::bmm(rows, weight.transpose(1, 2));
  };
  const at::Tensor wide = widen(x, gate_, up_, linear);
  const Scope fc2("fc2");
  return linear(wide, fc2_);
}

SharedExpert::SharedExpert(std::int64_t ffn, const MlpShape& mlp) : ShardedModule(mlp.parallel) {
  const auto in = [&] { return normal_values({ffn, mlp.hidden}, mlp.scale, mlp.options); };
  if (mlp.gated) {
    const auto first = std::make_shared<Parts>(mlp.parallel);
    gate_ = first->add_part("gate", in(), 0);
    up_ = first->add_part("up", in(), 0);
    register_module("fc1", first);
  } else {
    up_ = add_part("fc1", in(), 0);
  }
  fc2_ = add_part("fc2", normal_values({mlp.hidden, ffn}, mlp.output_scale, mlp.options), 1);
}

at::Tensor SharedExpert::widen(const at::Tensor& x) const {
  const Scope scope("shared_experts");
  return spillway::widen(x, gate_, up_, [](const at::Tensor& rows, const at::Tensor& weight) {
    return at::linear(rows, weight);
  });
}

at::Tensor SharedExpert::narrow(const at::Tensor& wide) const {
  const Scope scope("shared_experts");
  const Scope fc2("fc2");
  return at::linear(wide, fc2_);
}

Moe::Moe(const MoeShape& shape, std::int64_t ffn, const MlpShape& mlp)
    : shape_(shape), parallel_(mlp.parallel) {
  check(shape);
  check_divisible(parallel_, {{"expert_ffn", shape.ffn == 0 ? ffn : shape.ffn},
                              {"shared_expert_ffn", shape.shared_ffn}});
  router_ = add_weight(*this, "router", {shape.experts, mlp.hidden}, mlp.scale, mlp.options);
  experts_ = register_module(
      "experts", std::make_shared<ExpertWeights>(shape, shape.ffn == 0 ? ffn : shape.ffn, mlp));
  if (shape.shared_ffn > 0) {
    shared_ =
        register_module("shared_experts", std::make_shared<SharedExpert>(shape.shared_ffn, mlp));
  }
}

at::Tensor Moe::forward(const at::Tensor& x) const {
  std::vector<Routing> parts;
  {
    const Scope scope("router");
    parts = {route(x, router_, shape_.chosen, shape_.router, parallel_)};
  }
  at::Tensor all;
  {
    const Scope scope("dispatch");
    all = enter(parallel_, x);
  }
  const at::Tensor rows = all.flatten(0, -2);
  at::Tensor sum = shape_.overlap == MoeOverlap::kNone ? one_by_one(rows, parts)
                                                       : overlapped(rows, std::move(parts));
  const Scope scope("combine");
  return leave(parallel_, sum.view_as(all));
}

at::Tensor Moe::one_by_one(const at::Tensor& rows, const std::vector<Routing>& routing) const {
  const auto dispatch = std::move(make_dispatches(shape_, routing).front());
  dispatch->send(rows);
  dispatch->run(*experts_);
  at::Tensor sum = combine(*dispatch, routing.front());
  if (shared_ == nullptr) return sum;
  const at::Tensor shared = shared_->narrow(shared_->widen(rows));
  const Scope scope("combine");
  return sum + shared;
}

at::Tensor Moe::overlapped(const at::Tensor& rows, std::vector<Routing> parts) const {
  std::vector<at::Tensor> tokens{rows};
  if (shape_.overlap == MoeOverlap::kHalves && rows.size(0) >= 2) {
    const Scope scope("dispatch");
    const std::int64_t half = rows.size(0) / 2;
    parts = halves_of(parts.front(), half);
    tokens = rows.split_with_sizes({half, rows.size(0) - half});
  }
  const auto dispatches = make_dispatches(shape_, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) dispatches[i]->send(tokens[i]);
  // What the first rows to leave and the last to come back can hide behind.
  at::Tensor shared;
  if (shared_ != nullptr) shared = shared_->widen(rows);
  for (const auto& dispatch : dispatches) dispatch->run(*experts_);
  if (shared_ != nullptr) shared = shared_->narrow(shared);
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < parts.size(); ++i) sums.push_back(combine(*dispatches[i], parts[i]));
  const Scope scope("combine");
  at::Tensor sum = sums.size() == 1 ? sums.front() : at::cat(sums);
  return shared_ == nullptr ? sum : sum + shared;
}

at::Tensor Moe::combine(MoeDispatch& dispatch, const Routing& routing) const {
  const at::Tensor made = dispatch.collect();
  const Scope scope("combine");
  const at::Tensor by_choice = made.view({-1, shape_.chosen, made.size(-1)});
  return (by_choice * routing.weights.to(made.scalar_type()).unsqueeze(-1)).sum(1);
}

}  // namespace spillway
