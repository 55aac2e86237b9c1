/// What a mixture of experts makes the host wait for, as torch itself counts it on a GPU.

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "spillway/cuda/cuda_device.hpp"
#include "spillway/models/moe.hpp"

namespace spillway {
namespace {

using c10::cuda::SyncDebugMode;

class SyncDebug {
 public:
  explicit SyncDebug(SyncDebugMode mode)
      : before_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
  SyncDebug(const SyncDebug&) = delete;
  SyncDebug& operator=(const SyncDebug&) = delete;
  ~SyncDebug() { c10::cuda::warning_state().set_sync_debug_mode(before_); }

 private:
  SyncDebugMode before_;
};

/// Counts this thread's warnings about host synchronisations while it lives.
class SyncWarnings final : public c10::WarningHandler {
 public:
  SyncWarnings() {
    c10::WarningUtils::set_warning_handler(this);
    c10::WarningUtils::set_warnAlways(true);
  }
  SyncWarnings(const SyncWarnings&) = delete;
  SyncWarnings& operator=(const SyncWarnings&) = delete;
  ~SyncWarnings() override {
    c10::WarningUtils::set_warnAlways(false);
    c10::WarningUtils::set_warning_handler(nullptr);
  }

  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing") != std::string::npos) ++count_;
  }
  [[nodiscard]] int count() const noexcept { return count_; }

 private:
  SyncDebug mode_{SyncDebugMode::L_WARN};
  int count_ = 0;
};

class CudaMoe : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  }

  static int waits_of(double factor, MoeOverlap overlap) {
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
    at::manual_seed(1);
    const Moe moe({.experts = 8,
                   .shared_ffn = 128,
                   .capacity_factor = factor,
                   .overlap = overlap,
                   .router = {.aux_loss = 0.01, .z_loss = 0.01}},
                  256, {.hidden = 128, .options = options});
    const at::Tensor x = at::randn({512, 128}, options).set_requires_grad(true);
    moe.forward(x).sum().backward();  // Libraries wait when they are first used.
    int waits = 0;
    at::Tensor sum;
    {
      const SyncWarnings warnings;
      sum = moe.forward(x).sum();
      waits = warnings.count();
    }
    // On a thread of autograd's: there torch throws where the host would wait.
    const SyncDebug strict(SyncDebugMode::L_ERROR);
    sum.backward();
    return waits;
  }
};

TEST_F(CudaMoe, WithACapacityNeverMakesTheHostWait) {
  EXPECT_EQ(waits_of(1.25, MoeOverlap::kShared), 0);
  EXPECT_EQ(waits_of(1.25, MoeOverlap::kHalves), 0);
}

TEST_F(CudaMoe, WithoutACapacityWaitsForTheCountsAlone) {
  EXPECT_EQ(waits_of(0, MoeOverlap::kShared), 1);
  EXPECT_EQ(waits_of(0, MoeOverlap::kHalves), 1);
}

}  // namespace
}  // namespace spillway
