#include "spillway/core/columns.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(Columns, AreTwoSpacesApartAndEndWithoutSpaces) {
  EXPECT_EQ(in_columns({{"action", "bytes", "why"}, {"keep", "7", ""}}, {1}, 2),
            "  action  bytes  why\n"
            "  keep        7\n");
  EXPECT_EQ(in_columns({}, {}, 2), "");
}

TEST(Columns, TakeRowsOfSeveralLengths) {
  EXPECT_EQ(in_columns({{"a"}, {"bcd", "e"}}, {}, 0), "a\nbcd  e\n");
}

}  // namespace
}  // namespace spillway
