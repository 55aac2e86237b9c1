#include "spillway/models/moe_router.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "moe_programs.hpp"
#include "spillway/pipeline/pass_losses.hpp"

namespace spillway {
namespace {

using testing::HostWaits;
using testing::some_rows;

/// As it is usually written: sizes depend on data, so a GPU's host waits.
std::pair<at::Tensor, at::Tensor> reference_multihot(const at::Tensor& indices,
                                                     const at::Tensor& probabilities,
                                                     std::int64_t experts) {
  at::Tensor map = at::zeros({indices.size(0), experts}, at::kBool);
  at::Tensor spread = at::zeros({indices.size(0), experts}, probabilities.options());
  const at::Tensor there = (indices != -1).nonzero();
  const at::Tensor rows = there.select(1, 0);
  const at::Tensor columns = indices.masked_select(indices != -1);
  map.index_put_({rows, columns}, at::ones({columns.size(0)}, at::kBool));
  spread.index_put_({rows, columns}, probabilities.masked_select(indices != -1));
  return {map, spread};
}

TEST(Multihot, EqualsTheReferenceWithoutWaiting) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor all = at::rand({17, 6}, type);
    auto [probabilities, indices] = all.topk(3, -1);
    // Some rows have fewer, one has none.
    indices.index_put_({at::tensor({2, 5, 5, 5}), at::tensor({1, 0, 1, 2})},
                       at::scalar_tensor(-1, at::kLong));
    const auto wanted = reference_multihot(indices, probabilities, 6);
    const HostWaits host;
    const auto found = indices_to_multihot(indices, probabilities, 6);
    EXPECT_EQ(host.waits() + host.reads(), 0);
    EXPECT_EQ(found.first.scalar_type(), at::kBool);
    EXPECT_TRUE(at::equal(found.first, wanted.first));
    EXPECT_TRUE(at::equal(found.second, wanted.second));
  }
}

TEST(Multihot, PassesGradientsToTheProbabilities) {
  const at::Tensor indices = at::tensor({2, 0, -1, 1}, at::kLong).view({2, 2});
  const at::Tensor probabilities = at::rand({2, 2}, at::kDouble).set_requires_grad(true);
  const at::Tensor spread = indices_to_multihot(indices, probabilities, 3).second;
  (spread * at::arange(6, at::kDouble).view({2, 3})).sum().backward();
  EXPECT_TRUE(
      at::equal(probabilities.grad(), at::tensor({2.0, 0.0, 0.0, 4.0}, at::kDouble).view({2, 2})));
}

TEST(Router, CountsTheChoicesOfEachExpert) {
  const at::Tensor x = some_rows(20);
  const at::Tensor weight = some_rows(5, 9);
  const Routing routing = route(x, weight, 2, {});
  EXPECT_TRUE(at::equal(routing.counts, at::bincount(routing.chosen.reshape({-1}), {}, 5)));
  EXPECT_TRUE(at::allclose(routing.weights.sum(-1), at::ones({20}, at::kDouble)));
}

TEST(Router, WeighsByAllExpertsIfSoftmaxComesFirst) {
  const at::Tensor x = some_rows(20);
  const at::Tensor weight = some_rows(5, 9);
  const Routing routing = route(x, weight, 2, {.softmax = RouterSoftmax::kBefore});
  const at::Tensor likes = at::linear(x, weight).softmax(-1);
  EXPECT_TRUE(at::equal(routing.weights, likes.gather(-1, routing.chosen)));
}

/// The losses as one would write them, by autograd from beginning to end.
at::Tensor baseline_losses(const at::Tensor& x, const at::Tensor& weight, double aux, double z) {
  const at::Tensor logits = at::linear(x, weight);
  const at::Tensor likes = logits.softmax(-1);
  const at::Tensor chosen = std::get<1>(logits.topk(2, -1));
  const at::Tensor shares = at::bincount(chosen.reshape({-1}), {}, 5).to(at::kDouble) /
                            static_cast<double>(chosen.numel());
  return aux * 5 * (shares * likes.mean(0)).sum() + z * logits.logsumexp(-1).square().mean();
}

TEST(RouterLosses, HaveTheGradientsOfALossThatIsAdded) {
  const at::Tensor x = some_rows(20).set_requires_grad(true);
  const at::Tensor weight = some_rows(5, 9).set_requires_grad(true);
  const at::Tensor factors = some_rows(20, 4).narrow(1, 0, 2);
  const at::Tensor main =
      (route(x, weight, 2, {}).weights * factors).sum() + baseline_losses(x, weight, 0.3, 0.2);
  main.backward();
  const at::Tensor wanted = weight.grad().clone();
  const at::Tensor wanted_of_x = x.grad().clone();
  weight.mutable_grad().zero_();
  x.mutable_grad().zero_();
  const Routing routing = route(x, weight, 2, {.aux_loss = 0.3, .z_loss = 0.2});
  EXPECT_TRUE(at::equal(routing.weights, route(x, weight, 2, {}).weights));
  (routing.weights * factors).sum().backward();
  EXPECT_TRUE(at::allclose(weight.grad(), wanted, 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(x.grad(), wanted_of_x, 1e-10, 1e-12));
}

TEST(RouterLosses, AreWeighedAsTheLossOfThePassAndReported) {
  const at::Tensor x = some_rows(20);
  const at::Tensor weight = some_rows(5, 9).set_requires_grad(true);
  ExtraLosses sums;
  {
    const PassLosses pass([] { return at::scalar_tensor(0.125, at::kFloat); }, 0.5, sums);
    route(x, weight, 2, {.aux_loss = 0.3, .z_loss = 0.2}).weights.mul(0).sum().backward();
  }
  const at::Tensor found = weight.grad().clone();
  weight.mutable_grad().zero_();
  (baseline_losses(x, weight, 0.3, 0.2) * 0.125).backward();
  EXPECT_TRUE(at::allclose(found, weight.grad(), 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(sums[0], baseline_losses(x, weight, 0.5, 0).detach()));
  EXPECT_TRUE(at::allclose(sums[1], baseline_losses(x, weight, 0, 0.5).detach()));
}

TEST(RouterLosses, AreLeftOutWhereNothingIsLearnt) {
  const at::NoGradGuard no_gradients;
  ExtraLosses sums;
  const PassLosses pass([] { return at::scalar_tensor(1.0, at::kFloat); }, 1, sums);
  (void)route(some_rows(20), some_rows(5, 9), 2, {.aux_loss = 0.3});
  EXPECT_FALSE(sums[0].defined());
}

}  // namespace
}  // namespace spillway
