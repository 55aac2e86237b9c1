#pragma once

#include <vector>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "train/model/named_tensor.hpp"

namespace spillway::app {

inline void expect_equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_TRUE(at::equal(a[i].tensor, b[i].tensor)) << a[i].name;
  }
}

}  // namespace spillway::app
