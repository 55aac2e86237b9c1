#include "train/checkpoint/digest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;

TEST(CombinedDigest, DoesNotDependOnTheOrderInWhichParametersCome) {
  std::vector<NamedDigest> digests = {{"a", 1}, {"b", 2}, {"c", 3}};
  const std::uint64_t wanted = combined_digest(digests);
  while (std::next_permutation(digests.begin(), digests.end(),
                               [](const auto& a, const auto& b) { return a.name < b.name; })) {
    EXPECT_EQ(combined_digest(digests), wanted);
  }
}

TEST(CombinedDigest, CountsCopiesOnce) {
  EXPECT_EQ(combined_digest({{"a", 1}, {"b", 2}, {"a", 1}, {"a", 1}}),
            combined_digest({{"a", 1}, {"b", 2}}));
}

TEST(CombinedDigest, TellsRunsApart) {
  const std::uint64_t digest = combined_digest({{"a", 1}, {"b", 2}});
  EXPECT_NE(combined_digest({{"a", 1}, {"b", 3}}), digest);
  EXPECT_NE(combined_digest({{"a", 1}}), digest);
  EXPECT_NE(combined_digest({{"a", 2}, {"b", 1}}), digest);
}

TEST(CombinedDigest, NamesAParameterWhoseCopiesDiffer) {
  EXPECT_EQ(error_text<InvalidArgument>([] {
              (void)combined_digest({{"a", 1}, {"b", 2}, {"a", 4}});
            }),
            "[digest] copies of a differ between ranks, which should be equal");
}

std::uint64_t losses_of(const std::vector<double>& losses, std::size_t broken_at) {
  LossDigest digest;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i == broken_at) digest = LossDigest(digest.value());
    digest.add(static_cast<std::int64_t>(i), losses[i]);
  }
  return digest.value();
}

TEST(LossDigest, IsTheSameForAResumedRun) {
  const std::vector<double> losses = {4, 3, 2.5, std::numeric_limits<double>::quiet_NaN(), 1};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses_of(losses, i), losses_of(losses, losses.size()));
  }
}

TEST(LossDigest, TellsLossesApartToTheBit) {
  EXPECT_NE(losses_of({1, 2}, 9), losses_of({2, 1}, 9));
  EXPECT_NE(losses_of({0.0}, 9), losses_of({-0.0}, 9));
  EXPECT_NE(losses_of({1}, 9), losses_of({std::nextafter(1.0, 2.0)}, 9));
  EXPECT_NE(losses_of({1}, 9), losses_of({1, 1}, 9));
}

TEST(DigestLine, IsOneLine) {
  EXPECT_EQ(digest_line(0x0123456789abcdefU, 1),
            "digest: parameters 0123456789abcdef losses 0000000000000001");
}

}  // namespace
}  // namespace spillway::app
