#include "spillway/models/moe.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe_programs.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/layer_choice.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::by_all_experts;
using testing::clear_gradients;
using testing::error_text;
using testing::HostWaits;
using testing::make_moe;
using testing::one_expert;
using testing::some_rows;
using testing::weight;

/// Of the sum of the outputs weighed by position, by parameter; the last is that of the input.
std::vector<at::Tensor> gradients(const torch::nn::Module& module, const at::Tensor& out,
                                  const at::Tensor& x) {
  clear_gradients(module);
  x.mutable_grad() = at::Tensor();
  const at::Tensor weights = at::arange(out.numel(), out.options()).view_as(out).sin();
  (out * weights).sum().backward();
  std::vector<at::Tensor> found;
  for (const at::Tensor& each : module.parameters()) found.push_back(each.grad());
  found.push_back(x.grad());
  return found;
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), wanted[i].defined()) << i;
    if (found[i].defined()) {
      EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-10, 1e-12)) << i;
    }
  }
}

/// The order of sums differs between one product for all rows and one for each expert, so these are
/// compared as real numbers.
TEST(Moe, GivesWhatAllExpertsWouldWithTheWeightsOfTheChosenOnes) {
  for (const double factor : {0.0, 100.0}) {
    for (const int chosen : {1, 2, 5}) {
      for (const bool gated : {true, false}) {
        MoeShape shape{.experts = 5, .chosen = chosen, .capacity_factor = factor};
        shape.router.softmax = chosen == 1 ? RouterSoftmax::kBefore : RouterSoftmax::kAfter;
        const auto moe = make_moe(shape, gated);
        const at::Tensor x = some_rows(31).set_requires_grad(true);
        const at::Tensor found = moe->forward(x);
        const at::Tensor wanted = by_all_experts(*moe, shape, x);
        EXPECT_TRUE(at::allclose(found, wanted, 1e-10, 1e-12)) << factor << " " << chosen;
        expect_close(gradients(*moe, found, x), gradients(*moe, wanted, x));
      }
    }
  }
}

TEST(Moe, GivesTheSameForHalvesOfTheTokensIfNoneIsDropped) {
  for (const double factor : {0.0, 100.0}) {
    for (const std::int64_t tokens : {1, 2, 31}) {
      MoeShape shape{.experts = 4, .shared_ffn = 6, .capacity_factor = factor};
      shape.router = {.aux_loss = 0.1, .z_loss = 0.1};
      const auto whole = make_moe(shape);
      shape.overlap = MoeOverlap::kHalves;
      const auto halves = make_moe(shape);
      const at::Tensor x = some_rows(tokens).set_requires_grad(true);
      const at::Tensor wanted = whole->forward(x);
      const at::Tensor found = halves->forward(x);
      EXPECT_TRUE(at::allclose(found, wanted, 1e-10, 1e-12)) << factor << " " << tokens;
      expect_close(gradients(*halves, found, x), gradients(*whole, wanted, x));
    }
  }
}

TEST(Moe, GivesEachHalfOfTheTokensACapacityOfItsOwn) {
  const MoeShape shape{
      .experts = 4, .chosen = 1, .capacity_factor = 1.0, .overlap = MoeOverlap::kHalves};
  const auto moe = make_moe(shape);
  const at::NoGradGuard no_gradients;
  weight(*moe, "router").zero_();
  weight(*moe, "router").select(0, 2).fill_(1);
  const at::Tensor found = moe->forward(at::ones({8, testing::kHidden}, at::kDouble));
  const at::Tensor passed = found.abs().sum(1).gt(0).to(at::kLong);
  EXPECT_TRUE(at::equal(passed, at::tensor({1, 0, 0, 0, 1, 0, 0, 0}, at::kLong)));
}

/// In float, where another order of sums would show.
TEST(Moe, HasTheSameBitsWhetherTheSharedExpertRunsBesideOrAfter) {
  for (const double factor : {0.0, 1.0}) {
    std::vector<std::vector<at::Tensor>> all;
    for (const MoeOverlap overlap : {MoeOverlap::kNone, MoeOverlap::kShared}) {
      at::manual_seed(7);
      const Moe moe({.experts = 4,
                     .shared_ffn = 24,
                     .capacity_factor = factor,
                     .overlap = overlap,
                     .router = {.aux_loss = 0.1, .z_loss = 0.1}},
                    40, {.hidden = 32, .scale = 0.3, .output_scale = 0.3});
      auto generator = at::detail::createCPUGenerator(3);
      const at::Tensor x = at::randn({57, 32}, generator).set_requires_grad(true);
      const at::Tensor out = moe.forward(x);
      all.push_back(gradients(moe, out, x));
      all.back().push_back(out.detach());
    }
    ASSERT_EQ(all[0].size(), all[1].size());
    for (std::size_t i = 0; i < all[0].size(); ++i) EXPECT_TRUE(at::equal(all[0][i], all[1][i]));
  }
}

const std::vector<MoeOverlap> kOverlaps{MoeOverlap::kNone, MoeOverlap::kShared,
                                        MoeOverlap::kHalves};

TEST(Moe, RepeatsItsBits) {
  for (const double factor : {0.0, 1.0}) {
    const auto moe = make_moe({.experts = 4, .shared_ffn = 6, .capacity_factor = factor});
    const at::Tensor x = some_rows(40).set_requires_grad(true);
    const at::Tensor first = moe->forward(x);
    const auto wanted = gradients(*moe, first, x);
    const at::Tensor second = moe->forward(x);
    EXPECT_TRUE(at::equal(first, second));
    const auto found = gradients(*moe, second, x);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(wanted[i], found[i]));
  }
}

TEST(Moe, KeepsTheFirstTokensOfAFullExpert) {
  const MoeShape shape{.experts = 4, .chosen = 1, .capacity_factor = 1.0};
  const auto moe = make_moe(shape);
  const at::NoGradGuard no_gradients;
  weight(*moe, "router").zero_();
  weight(*moe, "router").select(0, 2).fill_(1);
  const at::Tensor x = at::ones({8, testing::kHidden}, at::kDouble);
  const at::Tensor found = moe->forward(x);
  EXPECT_TRUE(at::allclose(found.narrow(0, 0, 2), one_expert(*moe, 2, x).narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(found.narrow(0, 2, 6), at::zeros({6, testing::kHidden}, at::kDouble)));
}

TEST(Moe, GivesDroppedTokensNoGradient) {
  const auto moe = make_moe({.experts = 4, .chosen = 1, .capacity_factor = 1.0});
  {
    const at::NoGradGuard no_gradients;
    weight(*moe, "router").zero_();
    weight(*moe, "router").select(0, 2).fill_(1);
  }
  const at::Tensor x = at::ones({8, testing::kHidden}, at::kDouble).set_requires_grad(true);
  const auto found = gradients(*moe, moe->forward(x), x);
  EXPECT_GT(found.back().narrow(0, 0, 2).abs().min().item<double>(), 0);
  EXPECT_EQ(found.back().narrow(0, 2, 6).abs().max().item<double>(), 0);
}

TEST(Moe, MayHaveExpertsThatNoTokenChooses) {
  for (const double factor : {0.0, 8.0}) {
    const MoeShape shape{.experts = 4, .chosen = 1, .capacity_factor = factor};
    const auto moe = make_moe(shape);
    {
      const at::NoGradGuard no_gradients;
      weight(*moe, "router").zero_();
      weight(*moe, "router").select(0, 2).fill_(1);
    }
    const at::Tensor x = at::ones({6, testing::kHidden}, at::kDouble).set_requires_grad(true);
    const at::Tensor found = moe->forward(x);
    EXPECT_TRUE(at::allclose(found, one_expert(*moe, 2, x)));
    (void)gradients(*moe, found, x);
    EXPECT_EQ(weight(*moe, "experts.fc2").grad().select(0, 0).abs().max().item<double>(), 0);
    EXPECT_GT(weight(*moe, "experts.fc2").grad().select(0, 2).abs().max().item<double>(), 0);
  }
}

TEST(Moe, AddsTheExpertThatSeesEveryToken) {
  const MoeShape shape{.experts = 4, .shared_ffn = 6};
  const auto moe = make_moe(shape);
  const at::Tensor x = some_rows(9);
  const at::Tensor shared =
      at::linear(at::silu(at::linear(x, weight(*moe, "shared_experts.fc1.gate"))) *
                     at::linear(x, weight(*moe, "shared_experts.fc1.up")),
                 weight(*moe, "shared_experts.fc2"));
  EXPECT_TRUE(at::allclose(moe->forward(x), by_all_experts(*moe, shape, x) + shared));
}

TEST(Moe, KeepsTheShapeOfItsInput) {
  const auto moe = make_moe({.experts = 4});
  const at::Tensor x = some_rows(12);
  const at::Tensor found = moe->forward(x.view({2, 6, testing::kHidden}));
  EXPECT_TRUE(at::equal(found, moe->forward(x).view({2, 6, testing::kHidden})));
}

/// Forward and backward of a layer with everything it can have.
void run_all_of_it(double factor, MoeOverlap overlap) {
  const auto moe = make_moe({.experts = 4,
                             .shared_ffn = 6,
                             .capacity_factor = factor,
                             .overlap = overlap,
                             .router = {.aux_loss = 0.1, .z_loss = 0.1}});
  const at::Tensor x = some_rows(40).set_requires_grad(true);
  const at::Tensor weights = some_rows(40, 5);
  const HostWaits host;
  (moe->forward(x) * weights).sum().backward();
  EXPECT_EQ(host.waits(), 0);
  EXPECT_EQ(host.reads(), factor == 0 ? 1 : 0);
}

TEST(Moe, WithACapacityNeverMakesTheHostWait) {
  for (const MoeOverlap overlap : kOverlaps) run_all_of_it(1.25, overlap);
}

TEST(Moe, WithoutACapacityReadsTheCountsOnce) {
  for (const MoeOverlap overlap : kOverlaps) run_all_of_it(0, overlap);
}

TEST(MoeShape, SaysWhatCannotBe) {
  EXPECT_EQ(error_text<InvalidArgument>([] { check(MoeShape{.experts = 3, .chosen = 4}); }),
            "[model] chosen_experts = 4 of experts = 3: at least 1 and not more than there are "
            "wanted");
  EXPECT_EQ(error_text<InvalidArgument>([] { check(MoeShape{.experts = 3, .layers = "every x"}); }),
            "[layers] cannot read \"every x\" as layers: write a whole number from 1 on after "
            "\"every\", such as \"every 2\"");
}

TEST(MoeShape, NamesItsLayers) {
  const auto chosen = [](const char* layers) {
    std::vector<int> found;
    for (int i = 0; i < 6; ++i) {
      if (has_experts({.experts = 2, .layers = layers}, i, 6)) found.push_back(i);
    }
    return found;
  };
  EXPECT_THAT(chosen("every 2"), ::testing::ElementsAre(1, 3, 5));
  EXPECT_THAT(chosen("every 1"), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(chosen("1,3"), ::testing::ElementsAre(1, 3));
  EXPECT_THAT(chosen("4..-1"), ::testing::ElementsAre(4, 5));
  EXPECT_FALSE(has_experts({.experts = 0}, 1, 6));
}

}  // namespace
}  // namespace spillway
