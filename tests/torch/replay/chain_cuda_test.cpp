/// Chains on a GPU have the bits of torch's own operators.

#include <functional>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "spillway/torch/session.hpp"
#include "torch/device/chain_runner_cuda.hpp"
#include "torch/support/book_recorder.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using testing::BookRecorder;

/// Every value that a type of two bytes has.
at::Tensor all_values(at::ScalarType dtype) {
  return at::arange(1 << 16, at::kInt).to(at::kShort).view(dtype).view({256, 256}).cuda();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType word = a.element_size() == 2 ? at::kShort : at::kInt;
  return at::equal(a.contiguous().view(word), b.contiguous().view(word));
}

class CudaChain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
    at::manual_seed(1);
  }

  /// Recomputes them; `kernels` kernels are expected.
  void expect_same(const std::vector<at::Tensor>& wanted, int kernels) {
    const auto runner = make_cuda_chain_runner(0);
    std::vector<ValueId> values;
    for (const at::Tensor& tensor : wanted) values.push_back(recorder_.value_of(tensor));
    EXPECT_EQ(testing::replay(recorder_.book(), recorder_.job_for(values), runner.get()), kernels);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const at::Tensor found =
          TensorWindow(wanted[i]).on(recorder_.book().value(values[i]).recomputed);
      EXPECT_TRUE(same_bits(found, wanted[i])) << i << " of " << wanted[i].toString();
    }
  }

  BookRecorder recorder_;
};

TEST_F(CudaChain, HasTheBitsOfTheOperatorsForEveryValue) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = all_values(dtype);
    // Rows are rotated so that each value is combined with others.
    const at::Tensor y = x.flatten().roll(12345).view_as(x);
    std::vector<at::Tensor> results;
    recorder_.follow([&] {
      results.push_back(at::silu(x));
      results.push_back(results[0] * y);
      results.push_back(x + y);
      results.push_back(x - y);
      results.push_back(-results[3]);
      results.push_back(x.pow(2));
      results.push_back(x.to(at::kFloat));
      results.push_back(results[6].pow(2));
      results.push_back(results[7].to(dtype));
      return 0;
    });
    expect_same(results, 1);
  }
}

TEST_F(CudaChain, HasTheBitsOfTheOperatorsInFloat) {
  const at::Tensor x = at::randn({4096, 1024}, at::kCUDA).mul_(8);
  std::vector<at::Tensor> results;
  recorder_.follow([&] {
    results.push_back(at::silu(x));
    results.push_back(results[0] * x);
    results.push_back(results[1] + x);  // Not contracted to one rounding.
    results.push_back(results[2].to(at::kBFloat16));
    return 0;
  });
  expect_same(results, 1);
}

TEST_F(CudaChain, MakesANormAsTransformersWriteIt) {
  const at::Tensor x = at::randn({2, 1024, 512}, at::kCUDA).to(at::kBFloat16);
  const at::Tensor weight = at::randn({512}, at::kCUDA).to(at::kBFloat16);
  recorder_.fix(weight);
  std::vector<at::Tensor> results;
  recorder_.follow([&] {
    results.push_back(x.to(at::kFloat));
    const at::Tensor scale = (results[0].pow(2).mean(-1, true) + 1e-6).rsqrt();
    results.push_back((results[0] * scale).to(at::kBFloat16));
    results.push_back(weight * results[1]);
    return 0;
  });
  expect_same(results, 2);
}

/// A gated MLP whose SwiGLU a session recomputes.
class CudaChainOfASession : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
    at::manual_seed(1);
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
    for (int i = 0; i < 3; ++i) {
      weights_.push_back(at::randn({512, 512}, options).mul_(0.05).set_requires_grad(true));
    }
    x_ = at::randn({1024, 512}, options);
    SessionOptions given;
    given.rules = parse_rules(
        "[[rule]]\nproducer = ['aten::silu', 'aten::mul']\naction = 'recompute'\n", "a test");
    session_.emplace(std::move(given));
  }

  /// `between` is called with the result of SiLU. Neither it nor the product may have other owners
  /// in backward, because caller-owned buffers are not recomputed.
  std::vector<at::Tensor> gradients(Session* session,
                                    const std::function<void(const at::Tensor&)>& between) {
    for (const at::Tensor& weight : weights_) weight.mutable_grad() = at::Tensor();
    std::optional<Step> step;
    if (session != nullptr) step.emplace(session->step());
    const auto gate = [&] {
      at::Tensor made = at::silu(at::mm(x_, weights_[0]));
      between(made);
      return made;
    };
    const at::Tensor loss = at::mm(gate() * at::mm(x_, weights_[1]), weights_[2]).sum();
    loss.backward();
    step.reset();
    std::vector<at::Tensor> found;
    for (const at::Tensor& weight : weights_) found.push_back(weight.grad().clone());
    return found;
  }

  void expect_the_bits_of_no_session(const std::function<void(const at::Tensor&)>& between) {
    const std::vector<at::Tensor> wanted = gradients(nullptr, between);
    for (int i = 0; i < 5; ++i) {
      const std::vector<at::Tensor> found = gradients(&*session_, between);
      for (std::size_t j = 0; j < wanted.size(); ++j) {
        EXPECT_TRUE(same_bits(found[j], wanted[j])) << "step " << i << ", weight " << j;
      }
    }
  }

  std::vector<at::Tensor> weights_;
  at::Tensor x_;
  std::optional<Session> session_;
};

TEST_F(CudaChainOfASession, IsVerifiedAndUsed) {
  expect_the_bits_of_no_session([](const at::Tensor&) {});
  EXPECT_EQ(session_->report().repeated_calls, 2U) << session_->report();
  EXPECT_EQ(session_->report().fused_kernels, 1U) << session_->report();
  EXPECT_TRUE(session_->report().fallbacks.empty()) << session_->report();
}

/// Memory is written unseen by the dispatcher, so recomputed bits differ. Fusion might be the
/// cause: the session disables it and verifies again, which shows that it was not.
TEST_F(CudaChainOfASession, IsDisabledBeforeBuffersAreDemoted) {
  expect_the_bits_of_no_session([](const at::Tensor& made) {
    ASSERT_EQ(cudaMemsetAsync(made.mutable_data_ptr(), 0, 1024, c10::cuda::getCurrentCUDAStream()),
              cudaSuccess);
  });
  const SessionReport report = session_->report();
  EXPECT_EQ(report.fused_kernels, 0U) << report;
  EXPECT_EQ(report.demoted.size(), 1U) << report;
  EXPECT_EQ(report.fallbacks.count("verification failed with fused replays: fusion is now off"), 1U)
      << report;
}

}  // namespace
}  // namespace spillway
