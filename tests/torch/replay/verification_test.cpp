#include "torch/replay/verification.hpp"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

/// Whether verification fails for a buffer `original` that was recomputed as `recomputed`.
bool fails(const at::Tensor& original, const at::Tensor& recomputed) {
  Verification verification;
  verification.add({0, 3}, Verification::differs(original, recomputed), {});
  return !verification.read().empty();
}

TEST(Verification, TreatsANanAsEqualToItself) {
  const at::Tensor x = at::full({4}, std::nan(""));
  EXPECT_FALSE(fails(x, x.clone()));
}

TEST(Verification, DistinguishesNansByTheirBits) {
  const at::Tensor x = at::full({4}, std::nan(""));
  at::Tensor y = x.clone();
  y.view(at::kInt)[2].bitwise_xor_(1);
  ASSERT_TRUE(y.isnan().all().item<bool>());
  EXPECT_TRUE(fails(x, y));
}

TEST(Verification, DistinguishesZeroFromMinusZero) {
  EXPECT_TRUE(fails(at::zeros({4}), -at::zeros({4})));
  EXPECT_FALSE(fails(-at::zeros({4}), -at::zeros({4})));
}

TEST(Verification, ComparesEveryType) {
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
        at::kFloat, at::kDouble, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble,
        at::kFloat8_e4m3fn}) {
    const at::Tensor x = at::ones({5}).to(type);
    at::Tensor y = x.clone();
    EXPECT_FALSE(fails(x, y)) << type;
    // The last element, and of a complex one the second half.
    at::Tensor bytes =
        at::from_blob(y.data_ptr(), {static_cast<std::int64_t>(y.nbytes())}, at::kByte);
    bytes[-1] = bytes[-1].item<int>() ^ 1;
    EXPECT_TRUE(fails(x, y)) << type;
  }
}

TEST(Verification, ComparesEveryPieceOfALargeBuffer) {
  constexpr std::int64_t kPiece = 1 << 24;  // Larger ones are compared in pieces of it.
  const at::Tensor x = at::zeros({3, kPiece - 5}, at::kShort);
  EXPECT_FALSE(fails(x, x.clone()));
  for (const std::int64_t position : {std::int64_t{0}, kPiece - 1, kPiece, x.numel() - 1}) {
    at::Tensor y = x.clone();
    y.view(-1)[position] = 1;
    EXPECT_TRUE(fails(x, y)) << position;
  }
}

TEST(Verification, ComparesWindowsOnly) {
  const at::Tensor x = at::arange(24.0).view({4, 6});
  at::Tensor y = x.clone();
  y[1][1] = 100;
  const auto window = [](const at::Tensor& of) { return of.t().slice(0, 2, 6, 2).slice(1, 1, 4); };
  EXPECT_FALSE(fails(window(x), window(y)));
  y[1][2] = 100;
  EXPECT_TRUE(fails(window(x), window(y)));
}

TEST(Verification, ComparesComplexWindows) {
  const at::Tensor x = at::arange(12.0).to(at::kComplexFloat).view({3, 4}).t();
  EXPECT_FALSE(fails(x, x.t().clone().t()));
}

TEST(Verification, ComparesASingleNumber) {
  EXPECT_FALSE(fails(at::scalar_tensor(2.0), at::scalar_tensor(2.0)));
  EXPECT_TRUE(fails(at::scalar_tensor(2.0), at::scalar_tensor(3.0)));
}

TEST(Verification, FindsTheBufferThatCausedAMismatch) {
  Verification verification;
  const at::Tensor good = at::ones({4});
  const at::Tensor bad = at::zeros({4});
  verification.add({0, 1}, Verification::differs(good, bad), {});
  verification.add({0, 2}, Verification::differs(good, bad),
                   {{0, 1}, {0, 2}});  // A buffer may be among what it is made of.
  verification.add({0, 3}, Verification::differs(good, bad), {{0, 4}});
  verification.add({0, 4}, Verification::differs(good, good), {{0, 1}});
  const std::vector<Verification::Failure> failures = verification.read();
  ASSERT_EQ(failures.size(), 3U);
  EXPECT_EQ(failures[0].key.buffer, 1);
  EXPECT_TRUE(failures[0].own);
  EXPECT_EQ(failures[0].reason, "its recomputed bits differ");
  EXPECT_EQ(failures[1].key.buffer, 2);
  EXPECT_FALSE(failures[1].own);
  EXPECT_EQ(failures[2].key.buffer, 3);
  EXPECT_TRUE(failures[2].own);
}

TEST(Verification, FailsABufferThatWasRightInOneMicroBatchAndWrongInAnother) {
  Verification verification;
  verification.add({0, 1}, Verification::differs(at::ones({4}), at::ones({4})), {});
  verification.add({0, 1}, Verification::differs(at::ones({4}), at::zeros({4})), {});
  verification.add({0, 1}, Verification::differs(at::ones({4}), at::ones({4})), {});
  EXPECT_EQ(verification.read().size(), 1U);
}

TEST(Verification, NamesWhatCouldNotBeRecomputed) {
  Verification verification;
  verification.mark_unrecomputable({1, 5}, "a collective (c10d::allreduce_)");
  const std::vector<Verification::Failure> failures = verification.read();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].key, (Verification::Key{1, 5}));
  EXPECT_EQ(failures[0].reason, "not recomputable: a collective (c10d::allreduce_)");
  EXPECT_TRUE(verification.read().empty());
}

}  // namespace
}  // namespace spillway
