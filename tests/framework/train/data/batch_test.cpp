#include "train/data/batch.hpp"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace spillway::app {
namespace {

TEST(Batch, HasTokensAndWhatComesAfterThem) {
  ModelConfig model;
  model.tokens = 5;
  const auto corpus = make_corpus({}, model, CorpusUse::kTraining);
  const Batch batch = read_batch(*corpus, 40, 3, model.tokens, at::kCPU);
  ASSERT_EQ(batch.tokens.sizes(), (at::IntArrayRef{3, 5}));
  ASSERT_EQ(batch.targets.sizes(), (at::IntArrayRef{3, 5}));
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(batch.tokens.narrow(1, 1, 4), batch.targets.narrow(1, 0, 4)));
  for (std::int64_t i = 0; i < 3; ++i) {
    std::vector<std::int64_t> text(6);
    corpus->read(static_cast<std::uint64_t>(40 + i), text);
    for (std::int64_t k = 0; k < 5; ++k) {
      EXPECT_EQ(batch.tokens[i][k].item<std::int64_t>(), text[static_cast<std::size_t>(k)]);
      EXPECT_EQ(batch.targets[i][k].item<std::int64_t>(), text[static_cast<std::size_t>(k) + 1]);
    }
  }
}

}  // namespace
}  // namespace spillway::app
