#include "util/text/wrapped.hpp"

#include <gtest/gtest.h>

namespace spillway::app {
namespace {

TEST(Wrapped, BreaksBeforeTheFirstWordThatDoesNotFit) {
  EXPECT_EQ(wrapped("one two three", 0, 13), "one two three");
  EXPECT_EQ(wrapped("one two three", 0, 12), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 0, 7), "one two\nthree");
}

TEST(Wrapped, CountsTheIndentOfEveryLineAndWritesItFromTheSecond) {
  EXPECT_EQ(wrapped("one two three", 2, 9), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 2, 8), "one\n  two\n  three");
}

TEST(Wrapped, GivesAWordThatIsTooLongALineOfItsOwn) {
  EXPECT_EQ(wrapped("a incomparable b", 0, 5), "a\nincomparable\nb");
  EXPECT_EQ(wrapped("incomparable", 0, 5), "incomparable");
  EXPECT_EQ(wrapped("", 4, 5), "");
}

}  // namespace
}  // namespace spillway::app
