/// Compiling kernels with NVRTC, which needs no GPU.

#include <gtest/gtest.h>

#include "torch/device/chain_runner_cuda.hpp"
#include "torch/device/cuda_digest.hpp"
#include "torch/device/cuda_kernels.hpp"

namespace spillway {
namespace {

using Access = ChainProgram::Access;
using Operation = ChainProgram::Operation;

TEST(ChainSource, IsCompiledForEveryOperationTypeAndAccess) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const ChainProgram program{
        .inputs = {{dtype, Access::kFull}, {dtype, Access::kRow}, {dtype, Access::kColumn}},
        .nodes = {{Operation::kAdd, {0, 1}, dtype, true},
                  {Operation::kSub, {3, 2}, dtype, false},
                  {Operation::kMul, {4, 0}, dtype, true},
                  {Operation::kNegate, {5, -1}, dtype, false},
                  {Operation::kSquare, {6, -1}, dtype, false},
                  {Operation::kSilu, {7, -1}, dtype, true},
                  {Operation::kCast, {8, -1}, at::kFloat, false},
                  {Operation::kCast, {9, -1}, at::kBFloat16, true}}};
    for (const int capability : {80, 90}) {
      std::string problem;
      const std::vector<char> code = compile_chain(program, capability, problem);
      EXPECT_FALSE(code.empty()) << problem << program.source();
    }
  }
}

TEST(ChainSource, ReportsAnUnsupportedArchitecture) {
  std::string problem;
  const ChainProgram program{.inputs = {{at::kFloat, Access::kFull}},
                             .nodes = {{Operation::kNegate, {0, -1}, at::kFloat, true}}};
  EXPECT_TRUE(compile_chain(program, 12, problem).empty());
  EXPECT_NE(problem.find("gpu-architecture"), std::string::npos) << problem;
}

TEST(KernelSource, OfTheDigestIsCompiled) {
  for (const int capability : {80, 90}) {
    std::string problem;
    EXPECT_FALSE(compile_kernel(kCudaDigestSource, capability, problem).empty()) << problem;
  }
}

}  // namespace
}  // namespace spillway
