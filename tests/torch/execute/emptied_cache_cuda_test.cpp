// Storages of CUDA tensors that their owner empties and refills, while the allocator gives the
// memory back to the device in between: a copy of a session that is submitted too late would read
// memory that is not there.
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include "spillway/cuda/cuda_device.hpp"
#include "torch/support/program.hpp"
#include "torch/support/resized_storage.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;

// The allocator takes 20 MiB from the device for 16 tensors of this size. Their copies wait for
// others, in groups of 6.
constexpr std::int64_t kGroupedElements =
    (5LL << 20) / 4 / static_cast<std::int64_t>(sizeof(float));
constexpr std::size_t kGroupedBytes = kGroupedElements * sizeof(float);
constexpr int kInOneSegment = 16;
constexpr int kEmptied = 40;

std::int64_t reserved_bytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
}

/// Whether the allocator gave nothing back to the device once, as it may under compute-sanitizer.
bool g_kept_by_allocator = false;

/// Saves tensors, and frees their memory, also that of the device, until backward.
at::Tensor empty_and_refill(const at::Tensor& weight, int step) {
  const auto value = [&](int i) { return weight * (1 + i + 0.125 * step); };
  c10::cuda::CUDACachingAllocator::emptyCache();
  std::vector<at::Tensor> owned;
  at::Tensor total;
  {
    std::vector<at::Tensor> saved;
    for (int i = 0; i < kEmptied; ++i) saved.push_back(value(i));
    // No other tensor shares the device's memory with the last ones.
    std::vector<at::Tensor> rest;
    for (int i = 0; i < kInOneSegment; ++i) rest.push_back(at::empty_like(weight));
    total = saved[0].sin();
    for (int i = 1; i < kEmptied; ++i) total = total + saved[i].sin();
    for (const at::Tensor& each : saved) {
      owned.push_back(each.detach());
      testing::resize_storage(each.storage(), 0);
    }
  }
  const std::int64_t before = reserved_bytes();
  c10::cuda::CUDACachingAllocator::emptyCache();
  if (reserved_bytes() >= before) g_kept_by_allocator = true;
  {
    const at::NoGradGuard no_gradients;
    for (int i = 0; i < kEmptied; ++i) {
      testing::resize_storage(owned[i].storage(), kGroupedBytes);
      owned[i].variable_data().copy_(value(i));
    }
  }
  at::Tensor loss = total.sum();
  loss.backward();
  return loss;
}

TEST(EmptiedCache, DoesNotHurtCopiesThatWaitForOthers) {
  if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  const testing::MakeProgram make = [] {
    testing::Program program;
    program.weights = {testing::weight({kGroupedElements}, at::Device(at::kCUDA, 0))};
    program.step = [all = program.weights](Step*, int i) { return empty_and_refill(all[0], i); };
    return program;
  };
  for (const char* const action : {"keep", "offload", "recompute"}) {
    for (const Bytes window : {0_B, 8_MiB, 1_GiB}) {
      SessionOptions options =
          testing::with_rules(std::string("[[rule]]\naction = \"") + action + "\"\n");
      options.device = at::Device(at::kCUDA, 0);
      options.host = 256_MiB;
      options.offload_window = window;
      options.prefetch_window = window;
      Session session(std::move(options));
      EXPECT_EQ(testing::difference_of(make, session), 0)
          << action << " " << to_string(window) << "\n"
          << session.report();
    }
  }
  if (g_kept_by_allocator) GTEST_SKIP() << "skipped: the allocator kept what it was to give back";
}

}  // namespace
}  // namespace spillway
