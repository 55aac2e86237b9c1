#include "torch/device/host_digest.hpp"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

std::int64_t number(const at::Tensor& tensor) { return host_digest(tensor.storage()); }

TEST(HostDigest, IsThatOfTheBytes) {
  const at::Tensor tensor = at::arange(100, at::kLong);
  Digest digest;
  for (std::uint64_t i = 0; i < 100; ++i) digest.add(i);
  EXPECT_EQ(static_cast<std::uint64_t>(number(tensor)), digest.value());
}

TEST(HostDigest, IsEqualForEqualBitsOnly) {
  const at::Tensor tensor = at::arange(1001, at::kByte);
  at::Tensor other = tensor.clone();
  EXPECT_EQ(number(tensor), number(other));
  other[1000] = 3;
  EXPECT_NE(number(tensor), number(other));
}

}  // namespace
}  // namespace spillway
