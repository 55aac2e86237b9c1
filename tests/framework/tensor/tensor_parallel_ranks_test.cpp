/// Tensor and sequence parallelism: what passes between the ranks, and the layers that they share,
/// beside those of one rank. In double, because sums over ranks are made in another order.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/comm/random.hpp"
#include "spillway/tensor/tensor_modules.hpp"
#include "support/error_text.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using testing::error_text;
using ::testing::HasSubstr;
using testing::ranks;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kHidden = 16;

/// Equal numbers on all ranks, others for each `salt`.
at::Tensor common(at::IntArrayRef sizes, std::uint64_t salt) {
  at::manual_seed(1000 + salt);
  return at::randn(sizes, at::kDouble);
}

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

/// Whether they are equal but for the order of sums; prints how far they are apart.
::testing::AssertionResult close(const at::Tensor& found, const at::Tensor& wanted) {
  constexpr double kTolerance = 1e-12;
  if (found.sizes() != wanted.sizes()) {
    return ::testing::AssertionFailure() << found.sizes() << " instead of " << wanted.sizes();
  }
  const double error = (found - wanted).abs().max().item<double>();
  const double share = error / (kTolerance * std::max(1.0, wanted.abs().max().item<double>()));
  if (share <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the worst error is " << share << " x the tolerance";
}

class TensorParallelRanks : public ::testing::TestWithParam<bool> {
 protected:
  TensorParallelRanks() : parallel_{everyone(), GetParam()} {}

  /// One group for all cases.
  static const Group& everyone() {
    static const Group kGroup = ranks().group("tensor", {all()});
    return kGroup;
  }

  static std::vector<int> all() {
    std::vector<int> list;
    for (int rank = 0; rank < ranks().size(); ++rank) list.push_back(rank);
    return list;
  }

  /// This rank's part of what lies between blocks.
  [[nodiscard]] at::Tensor between(const at::Tensor& whole) const {
    return parallel_.sequence ? part(whole, 1) : whole;
  }

  [[nodiscard]] at::Tensor part(const at::Tensor& whole, int dimension) const {
    return part_of(whole, {dimension, {whole.size(dimension)}}, parallel_.rank(),
                   parallel_.ranks());
  }

  /// The gradient of a weight that all ranks have, as PipelineRunner makes it.
  [[nodiscard]] at::Tensor replicated_gradient(const at::Tensor& weight) const {
    at::Tensor gradient = weight.grad().clone();
    if (parallel_.sequence) parallel_.group.all_reduce(gradient);
    return gradient;
  }

  /// The whole gradient of a module's parameter.
  [[nodiscard]] at::Tensor whole_gradient(const ShardedModule& module,
                                          const std::string& name) const {
    return gather_buffer(parallel_.group, module.named_parameters()[name].grad(),
                         module.shards().at(name));
  }

  void expect_equal_on_all_ranks(const at::Tensor& tensor) const {
    const at::Tensor all = parallel_.group.all_gather(tensor.detach().contiguous());
    for (int rank = 1; rank < parallel_.ranks(); ++rank) {
      EXPECT_TRUE(at::equal(all[rank], all[0])) << "rank " << rank;
    }
  }

  TensorParallel parallel_;
};

INSTANTIATE_TEST_SUITE_P(Sequence, TensorParallelRanks, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "split" : "whole"; });

TEST_P(TensorParallelRanks, MoveForwardAndBackwardAsTheySay) {
  const std::int64_t n = parallel_.ranks();
  const auto mine = static_cast<std::uint64_t>(parallel_.rank());
  const auto of_rank = [&](std::int64_t length, std::uint64_t rank) {
    return common({kBatch, length, 3}, 10 + rank);
  };
  const auto sum = [&](std::int64_t length) {
    at::Tensor total = of_rank(length, 0);
    for (int rank = 1; rank < n; ++rank)
      total = total + of_rank(length, static_cast<std::uint64_t>(rank));
    return total;
  };
  const auto row = [&](std::int64_t length) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < n; ++rank)
      parts.push_back(of_rank(length, static_cast<std::uint64_t>(rank)));
    return at::cat(parts, 1);
  };
  struct Case {
    at::Tensor (*move)(const TensorParallel&, const at::Tensor&);
    std::int64_t in, out;  // Lengths.
    at::Tensor forward, backward;
  };
  const std::int64_t whole = n * 2;
  for (const Case& each : {Case{copy_to_group, 4, 4, of_rank(4, mine), sum(4)},
                           Case{reduce_from_group, 4, 4, sum(4), of_rank(4, mine)},
                           Case{gather_sequence, 2, whole, row(2), part(sum(whole), 1)},
                           Case{scatter_sequence, whole, 2, part(sum(whole), 1), row(2)},
                           Case{split_sequence, whole, 2, part(of_rank(whole, mine), 1), row(2)}}) {
    const at::Tensor x = leaf(of_rank(each.in, mine));
    const at::Tensor y = each.move(parallel_, x);
    EXPECT_TRUE(at::equal(y, each.forward));
    y.backward(of_rank(each.out, mine));
    EXPECT_TRUE(at::equal(x.grad(), each.backward));
  }
}

TEST_P(TensorParallelRanks, RefuseASequenceThatCannotBeDivided) {
  const at::Tensor odd = common({kBatch, 2 * parallel_.ranks() + 1, 3}, 1);
  for (const auto move : {scatter_sequence, split_sequence}) {
    EXPECT_THAT(
        error_text<InvalidArgument>([&] { (void)move(parallel_, odd); }),
        HasSubstr("cannot be divided into " + std::to_string(parallel_.ranks()) + " equal"));
  }
}

TEST_P(TensorParallelRanks, ShareABlockOfTwoLinearLayers) {
  const std::int64_t wide = 2 * kHidden;
  // Two blocks, as queries and keys have them: each rank has a part of both.
  const std::vector<std::int64_t> blocks{kHidden, kHidden};
  const at::Tensor w1 = common({wide, kHidden}, 1);
  const at::Tensor b1 = common({wide}, 2);
  const at::Tensor w2 = common({kHidden, kHidden}, 3);
  const at::Tensor b2 = common({kHidden}, 4);
  const at::Tensor x = common({kBatch, kTokens, kHidden}, 5);
  const at::Tensor gradient = common({kBatch, kTokens, kHidden}, 6);
  const auto run = [](const auto& column, const auto& row, const at::Tensor& input) {
    const auto halves = column.forward(input).chunk(2, -1);
    return row.forward(halves[0] * halves[1].tanh());
  };

  const TensorParallel alone;
  const auto dense_column = std::make_shared<ColumnLinear>(alone, w1.clone(), b1.clone(), blocks);
  const auto dense_row = std::make_shared<RowLinear>(alone, w2.clone(), b2.clone());
  const at::Tensor dense_x = leaf(x);
  const at::Tensor wanted = run(*dense_column, *dense_row, dense_x);
  wanted.backward(gradient);

  const auto column = std::make_shared<ColumnLinear>(parallel_, w1, b1, blocks);
  const auto row = std::make_shared<RowLinear>(parallel_, w2, b2);
  const at::Tensor mine = leaf(between(x));
  const at::Tensor found = run(*column, *row, mine);
  found.backward(between(gradient));

  EXPECT_TRUE(dense_column->shards().empty());
  EXPECT_TRUE(close(found, between(wanted)));
  EXPECT_TRUE(close(mine.grad(), between(dense_x.grad())));
  const auto wanted_gradient = [](const torch::nn::Module& module, const char* name) {
    return module.named_parameters()[name].grad();
  };
  EXPECT_TRUE(close(whole_gradient(*column, "weight"), wanted_gradient(*dense_column, "weight")));
  EXPECT_TRUE(close(whole_gradient(*column, "bias"), wanted_gradient(*dense_column, "bias")));
  EXPECT_TRUE(close(whole_gradient(*row, "weight"), wanted_gradient(*dense_row, "weight")));
  const at::Tensor bias = replicated_gradient(row->named_parameters()["bias"]);
  EXPECT_TRUE(close(bias, wanted_gradient(*dense_row, "bias")));
  expect_equal_on_all_ranks(bias);
  if (!parallel_.sequence) expect_equal_on_all_ranks(found);
}

TEST_P(TensorParallelRanks, ShareTheVocabularyOfEmbeddingAndLoss) {
  const std::int64_t vocabulary = 12 * parallel_.ranks();
  const at::Tensor weight = common({vocabulary, kHidden}, 1);
  at::manual_seed(7);
  const at::Tensor tokens = at::randint(vocabulary, {kBatch, kTokens}, at::kLong);
  const at::Tensor targets = at::randint(vocabulary, {kBatch, kTokens}, at::kLong);
  const auto run = [&](const TensorParallel& parallel, const VocabularyEmbedding& embedding) {
    const at::Tensor logits = embedding.logits(embedding.forward(tokens).tanh());
    EXPECT_EQ(logits.size(-1), vocabulary / parallel.ranks());
    return vocabulary_cross_entropy(parallel, logits, targets);
  };
  const TensorParallel alone;
  const auto dense = std::make_shared<VocabularyEmbedding>(alone, weight.clone());
  const at::Tensor wanted = run(alone, *dense);
  wanted.backward();
  const auto sharded = std::make_shared<VocabularyEmbedding>(parallel_, weight);
  const at::Tensor found = run(parallel_, *sharded);
  found.backward();
  EXPECT_TRUE(close(found, wanted));
  expect_equal_on_all_ranks(found.reshape({1}));
  EXPECT_TRUE(
      close(whole_gradient(*sharded, "weight"), dense->named_parameters()["weight"].grad()));
}

TEST_P(TensorParallelRanks, KeepTheLossFiniteForLargeLogits) {
  const at::Tensor logits = 1e4 * common({1, 4, 2 * parallel_.ranks()}, 3).to(at::kFloat);
  const at::Tensor targets = at::zeros({1, 4}, at::kLong);
  const at::Tensor found = vocabulary_cross_entropy(parallel_, part(logits, 2), targets);
  const at::Tensor wanted = vocabulary_cross_entropy({}, logits, targets);
  EXPECT_TRUE(at::allclose(found, wanted, 1e-6));
}

TEST_P(TensorParallelRanks, DrawTheirOwnNumbersOnlyWhereTensorsAreSharded) {
  seed_generators(at::kCPU, 3);
  const at::Tensor before = at::rand({4});
  at::Tensor first;
  at::Tensor second;
  {
    const ShardedRandom random(parallel_, at::kCPU);
    first = at::rand({4});
  }
  {
    const ShardedRandom random(parallel_, at::kCPU);
    second = at::rand({4});
  }
  const at::Tensor after = at::rand({4});
  expect_equal_on_all_ranks(before);
  expect_equal_on_all_ranks(after);
  EXPECT_FALSE(at::equal(first, second));
  const at::Tensor all = parallel_.group.all_gather(first);
  for (int rank = 1; rank < parallel_.ranks(); ++rank) EXPECT_FALSE(at::equal(all[rank], all[0]));
  // How much was drawn within does not matter outside.
  seed_generators(at::kCPU, 3);
  (void)at::rand({4});
  for (int i = 0; i < 2; ++i) {
    const ShardedRandom random(parallel_, at::kCPU);
    (void)at::rand({17 + parallel_.rank()});
  }
  EXPECT_TRUE(at::equal(at::rand({4}), after));
}

TEST_P(TensorParallelRanks, DropWhatLiesBetweenBlocksAsItIsSharded) {
  seed_generators(at::kCPU, 3);
  const at::Tensor dropped = dropout_between(parallel_, at::ones({64}), 0.5, true);
  const at::Tensor all = parallel_.group.all_gather(dropped);
  for (int rank = 1; rank < parallel_.ranks(); ++rank) {
    EXPECT_EQ(at::equal(all[rank], all[0]), !parallel_.sequence);
  }
}

TEST(Shard, GivesTheWholeBackToTheBit) {
  const int n = ranks().size();
  const at::Tensor whole = common({3, 6 * n, 2}, 9);
  const Shard shard{1, {4 * n, n, n}};
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < n; ++rank) parts.push_back(part_of(whole, shard, rank, n));
  EXPECT_EQ(parts[0].size(1), 6);
  EXPECT_TRUE(at::equal(whole_of(parts, shard), whole));
  const std::string left = error_text<InvalidArgument>([&] {
    (void)part_of(common({6 * n + 1}, 1), {0, {static_cast<std::int64_t>(6 * n + 1)}}, 0, n);
  });
  EXPECT_THAT(left, HasSubstr(std::to_string(6 * n + 1) + " / " + std::to_string(n) + " leaves 1"));
}

}  // namespace
}  // namespace spillway
