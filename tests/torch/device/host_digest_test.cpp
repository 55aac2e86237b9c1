#include "torch/device/host_digest.hpp"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

std::int64_t number(const at::Tensor& tensor) {
  return host_digest(tensor.storage(), ByteRange::of(tensor));
}

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

TEST(HostDigest, IsThatOfTheTensorsElements) {
  const at::Tensor tensor = at::arange(1000, at::kInt).view({10, 100});
  const at::Tensor rows = tensor.slice(0, 3, 5);
  const std::int64_t before = number(rows);
  EXPECT_EQ(before, number(rows.clone()));
  tensor.slice(0, 0, 3).zero_();
  tensor.slice(0, 5).zero_();
  EXPECT_EQ(number(rows), before);
  rows[1][99] = 0;
  EXPECT_NE(number(rows), before);
}

}  // namespace
}  // namespace spillway
