#include "spillway/torch/read_back.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// Runs on the CPU and, in the program of GPU tests, on CUDA.
class ReadBack : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == at::kCUDA && !at::hasCUDA()) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

TEST_P(ReadBack, GivesIntegersAndBooleansAsTheyAre) {
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    const at::Tensor there = at::arange(0, 96, GetParam()).view({8, 12}).to(type);
    for (const at::Tensor& each : {there, there.t(), there.slice(0, 2, 5), there[3][4]}) {
      const at::Tensor here = read_back(each);
      EXPECT_TRUE(here.is_cpu());
      EXPECT_EQ(here.scalar_type(), type);
      EXPECT_TRUE(at::equal(here, each.to(at::kCPU)));
    }
  }
}

TEST_P(ReadBack, WaitsForPendingResults) {
  at::Tensor sum = at::zeros({4}, at::TensorOptions(GetParam()).dtype(at::kLong));
  for (int i = 0; i < 200; ++i) sum = sum + at::ones({1 << 16}, sum.options()).sum();
  EXPECT_EQ(read_back(sum)[3].item<std::int64_t>(), 200LL << 16);
}

TEST_P(ReadBack, TakesEmptyTensors) {
  const at::Tensor nothing = at::empty({0, 3}, at::TensorOptions(GetParam()).dtype(at::kLong));
  EXPECT_EQ(read_back(nothing).sizes(), nothing.sizes());
}

TEST_P(ReadBack, RejectsFloatingPointTensors) {
  try {
    (void)read_back(at::ones({2}, at::TensorOptions(GetParam())));
    FAIL() << "a tensor of floats was read";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("integers or booleans wanted, not of Float"));
  }
}

#ifdef SPILLWAY_TEST_CUDA
INSTANTIATE_TEST_SUITE_P(Cuda, ReadBack, ::testing::Values(at::kCUDA));
#else
INSTANTIATE_TEST_SUITE_P(Cpu, ReadBack, ::testing::Values(at::kCPU));
#endif

}  // namespace
}  // namespace spillway
