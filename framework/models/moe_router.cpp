#include "spillway/models/moe_router.hpp"

#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "spillway/pipeline/pass_losses.hpp"

namespace spillway {
namespace {

at::Tensor balance_loss(const at::Tensor& likes, const at::Tensor& counts, std::int64_t choices) {
  const at::Tensor shares = counts.to(likes.scalar_type()) / static_cast<double>(choices);
  return (likes.mean(0) * shares).sum() * static_cast<double>(counts.size(0));
}

/// What the members have of each token, by the order of the whole sequences.
at::Tensor of_all_tokens(const TensorParallel& parallel, const at::Tensor& x,
                         const at::Tensor& mine) {
  return gather_sequence(parallel, mine.view({x.size(0), x.size(1), -1})).flatten(0, 1);
}

at::Tensor counts_of(const at::Tensor& chosen, std::int64_t experts) {
  return indices_to_multihot(chosen, {}, experts).first.sum(0, false, at::kLong);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> indices_to_multihot(const at::Tensor& indices,
                                                      const at::Tensor& probabilities,
                                                      std::int64_t experts) {
  // One column more takes what is of no expert.
  const at::Tensor columns = at::where(indices < 0, experts, indices);
  const std::vector<std::int64_t> sizes{indices.size(0), experts + 1};
  const at::Tensor map =
      at::zeros(sizes, indices.options().dtype(at::kBool)).scatter(1, columns, true);
  at::Tensor spread;
  if (probabilities.defined()) {
    spread = at::zeros(sizes, probabilities.options())
                 .scatter(1, columns, probabilities)
                 .narrow(1, 0, experts);
  }
  return {map.narrow(1, 0, experts), spread};
}

Routing route(const at::Tensor& x, const at::Tensor& weight, std::int64_t chosen,
              const RouterShape& shape, const TensorParallel& parallel) {
  const bool split = parallel.active() && parallel.sequence;
  const at::Tensor given = at::linear(x.flatten(0, -2), weight);
  const at::Tensor logits = given.scalar_type() == at::kDouble ? given : given.to(at::kFloat);
  at::Tensor likes;
  Routing routing;
  if (shape.softmax == RouterSoftmax::kBefore) {
    likes = logits.softmax(-1);
    std::tie(routing.weights, routing.chosen) = likes.topk(chosen, -1);
  } else {
    at::Tensor best;
    std::tie(best, routing.chosen) = logits.topk(chosen, -1);
    routing.weights = best.softmax(-1);
  }
  if (split) routing.chosen = of_all_tokens(parallel, x, routing.chosen);
  routing.counts = counts_of(routing.chosen, weight.size(0));
  if (at::GradMode::is_enabled()) {
    // With the counts of all tokens, the parts of the ranks sum up to the loss of all tokens.
    const auto part = [&](const at::Tensor& loss) {
      return split ? loss / static_cast<double>(parallel.ranks()) : loss;
    };
    if (shape.aux_loss != 0) {
      if (!likes.defined()) likes = logits.softmax(-1);
      const at::Tensor loss = balance_loss(likes, routing.counts, routing.chosen.numel());
      routing.weights = with_loss(routing.weights, ExtraLoss::kBalance, part(loss), shape.aux_loss);
    }
    if (shape.z_loss != 0) {
      const at::Tensor loss = logits.logsumexp(-1).square().mean();
      routing.weights = with_loss(routing.weights, ExtraLoss::kZ, part(loss), shape.z_loss);
    }
  }
  routing.weights = split ? of_all_tokens(parallel, x, routing.weights)
                          : copy_to_group(parallel, routing.weights);
  return routing;
}

std::vector<Routing> halves_of(const Routing& routing, std::int64_t tokens) {
  const std::vector<std::int64_t> sizes{tokens, routing.chosen.size(0) - tokens};
  // Split rather than sliced: in backward one concatenation, and no zeros for the other half.
  const std::vector<at::Tensor> weights = routing.weights.split_with_sizes(sizes);
  const std::vector<at::Tensor> chosen = routing.chosen.split_with_sizes(sizes);
  const at::Tensor first = counts_of(chosen[0], routing.counts.size(0));
  return {{chosen[0], weights[0], first}, {chosen[1], weights[1], routing.counts - first}};
}

}  // namespace spillway
