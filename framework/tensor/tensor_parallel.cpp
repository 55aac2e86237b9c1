#include "spillway/tensor/tensor_parallel.hpp"

#include <ATen/ops/dropout.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "comm/group_operators.hpp"

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Move { kSame, kReduce, kGather, kScatter, kSplit };

at::Tensor carry_out(Move move, const Group& group, const at::Tensor& x) {
  switch (move) {
    case Move::kSame:
      return x;
    case Move::kReduce:
      return call_all_reduce(group, x);
    case Move::kGather:
      return call_all_gather(group, x);
    case Move::kScatter:
      return call_reduce_scatter(group, x);
    case Move::kSplit: {
      require_equal_parts(group, x);
      const std::int64_t part = x.size(1) / group.size();
      return x.narrow(1, group.rank() * part, part).contiguous();
    }
  }
  return {};
}

/// One move forward, another one backward.
template <Move kForward, Move kBackward>
class Moved : public torch::autograd::Function<Moved<kForward, kBackward>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Group& group) {
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<SavedGroup>(group));
    return carry_out(kForward, group, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->saved_data["group"].toCapsule();
    const Group& group = static_cast<const SavedGroup&>(*saved).group;
    return {carry_out(kBackward, group, gradients[0]), at::Tensor()};
  }

 private:
  struct SavedGroup : torch::CustomClassHolder {
    explicit SavedGroup(Group of) : group(std::move(of)) {}
    Group group;
  };
};

template <Move kForward, Move kBackward>
at::Tensor move(const TensorParallel& parallel, const at::Tensor& x) {
  if (!parallel.active()) return x;
  return Moved<kForward, kBackward>::apply(x, parallel.group);
}

}  // namespace

at::Tensor copy_to_group(const TensorParallel& parallel, const at::Tensor& x) {
  return move<Move::kSame, Move::kReduce>(parallel, x);
}

at::Tensor reduce_from_group(const TensorParallel& parallel, const at::Tensor& x) {
  return move<Move::kReduce, Move::kSame>(parallel, x);
}

at::Tensor gather_sequence(const TensorParallel& parallel, const at::Tensor& x) {
  return move<Move::kGather, Move::kScatter>(parallel, x);
}

at::Tensor scatter_sequence(const TensorParallel& parallel, const at::Tensor& x) {
  return move<Move::kScatter, Move::kGather>(parallel, x);
}

at::Tensor split_sequence(const TensorParallel& parallel, const at::Tensor& x) {
  return move<Move::kSplit, Move::kGather>(parallel, x);
}

at::Tensor enter(const TensorParallel& parallel, const at::Tensor& x) {
  return parallel.sequence ? gather_sequence(parallel, x) : copy_to_group(parallel, x);
}

at::Tensor leave(const TensorParallel& parallel, const at::Tensor& x) {
  return parallel.sequence ? scatter_sequence(parallel, x) : reduce_from_group(parallel, x);
}

at::Tensor dropout_between(const TensorParallel& parallel, const at::Tensor& x, double share,
                           bool training) {
  if (share == 0) return x;
  std::optional<ShardedRandom> random;
  if (parallel.sequence) random.emplace(parallel, x.device());
  return at::dropout(x, share, training);
}

}  // namespace spillway
