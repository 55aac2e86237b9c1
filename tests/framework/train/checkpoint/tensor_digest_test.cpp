#include "train/checkpoint/tensor_digest.hpp"

#include <set>

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace spillway::app {
namespace {

std::uint64_t digest(const std::string& name, const at::Tensor& tensor) {
  return tensor_digest({name, tensor}).digest;
}

TEST(TensorDigest, DependsOnNameTypeShapeAndEveryBit) {
  const at::Tensor tensor = at::arange(6, at::kFloat);
  std::set<std::uint64_t> seen = {digest("a", tensor)};
  EXPECT_TRUE(seen.insert(digest("b", tensor)).second);
  EXPECT_TRUE(seen.insert(digest("a", tensor.view({2, 3}))).second);
  EXPECT_TRUE(seen.insert(digest("a", tensor.view({3, 2}))).second);
  EXPECT_TRUE(seen.insert(digest("a", tensor.view(at::kInt))).second);
  at::Tensor changed = tensor.clone();
  changed.view(at::kInt)[5].bitwise_xor_(1);
  EXPECT_TRUE(seen.insert(digest("a", changed)).second);
  changed = tensor.clone();
  changed[0].neg_();  // 0 and -0 are equal, but not to the bit.
  EXPECT_TRUE(seen.insert(digest("a", changed)).second);
}

TEST(TensorDigest, DoesNotDependOnHowTheTensorLies) {
  const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_EQ(digest("a", tensor.t().contiguous().t()), digest("a", tensor));
  EXPECT_EQ(digest("a", tensor.clone().requires_grad_(true)), digest("a", tensor));
}

}  // namespace
}  // namespace spillway::app
