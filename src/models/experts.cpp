#include "spillway/models/experts.hpp"

#include <ATen/ATen.h>

#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

/// Which rows go to which expert, sorted by expert.
struct Routing {
  at::Tensor rows;                   // Of the input, one for each (row, expert) that were chosen.
  at::Tensor weights;                // Of what the expert makes of it.
  std::vector<std::int64_t> counts;  // By expert.
};

Routing route(const Experts& experts, const at::Tensor& x) {
  const Scope scope("router");
  const at::Tensor likes = at::linear(x, experts.router).softmax(-1, at::kFloat);
  auto [weights, chosen] = likes.topk(experts.chosen, -1);
  weights = weights / weights.sum(-1, true);
  const at::Tensor expert = chosen.reshape({-1});
  const at::Tensor order = at::argsort(expert, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto size = static_cast<std::int64_t>(experts.each.size());
  const at::Tensor counts = at::bincount(expert, {}, size).to(at::kCPU);
  const auto* first = counts.const_data_ptr<std::int64_t>();
  return {at::floor_divide(order, experts.chosen),
          weights.reshape({-1}).index_select(0, order).to(x.scalar_type()),
          {first, first + size}};
}

}  // namespace

at::Tensor run_expert(const Expert& expert, const at::Tensor& x) {
  at::Tensor gate;
  at::Tensor up;
  {
    const Scope fc1("fc1");
    gate = at::linear(x, expert.gate);
    up = at::linear(x, expert.up);
  }
  at::Tensor product;
  {
    const Scope act("act");
    product = at::silu(gate) * up;
  }
  const Scope fc2("fc2");
  return at::linear(product, expert.down);
}

at::Tensor run_experts(const Experts& experts, const at::Tensor& x) {
  const Routing routing = route(experts, x);
  const Scope scope("experts");
  const at::Tensor sent = x.index_select(0, routing.rows);
  std::vector<at::Tensor> made;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < experts.each.size(); ++i) {
    const std::int64_t count = routing.counts[i];
    made.push_back(run_expert(experts.each[i], sent.narrow(0, begin, count)));
    begin += count;
  }
  const at::Tensor weighted = at::cat(made) * routing.weights.unsqueeze(-1);
  return at::zeros_like(x).index_add(0, routing.rows, weighted);
}

}  // namespace spillway
