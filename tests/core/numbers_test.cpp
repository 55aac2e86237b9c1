#include "spillway/core/numbers.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(Numbers, AreReadAfterBlanksAndUpToWhatIsNone) {
  EXPECT_EQ(whole_number("   131980916 kB"), 131980916);
  EXPECT_EQ(whole_number("-1\n"), -1);
  EXPECT_EQ(whole_number("9223372036854775807"), 9223372036854775807);
  EXPECT_EQ(whole_number("9223372036854775808"), std::nullopt);
  EXPECT_EQ(whole_number("max"), std::nullopt);
  EXPECT_EQ(whole_number("  "), std::nullopt);
  EXPECT_EQ(whole_number(""), std::nullopt);
}

TEST(Numbers, AreWrittenAsAsked) {
  EXPECT_EQ(with_decimals(3.14159, 2), "3.14");
  EXPECT_EQ(with_decimals(-0.005, 1), "-0.0");
  EXPECT_EQ(with_decimals(1e20, 0), "100000000000000000000");
  EXPECT_EQ(shortest(0.5), "0.5");
  EXPECT_EQ(shortest(1), "1");
  EXPECT_EQ(padded("ab", 4), "ab  ");
  EXPECT_EQ(padded("abcdef", 4), "abcdef");
}

}  // namespace
}  // namespace spillway
