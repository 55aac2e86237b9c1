// CUDA tensors over MPI, which takes them through host memory: several ranks may share one
// device.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace spillway::testing {
namespace {

TEST(CudaTensors, TravelThroughTheHost) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
  const Group all = ranks().everyone();
  const auto filled = [](int value) {
    return at::full({2, 1000}, value, at::kCUDA).to(at::kFloat);
  };
  at::Tensor sum = filled(all.rank() + 1);
  all.all_reduce(sum);
  EXPECT_TRUE(at::equal(sum, filled(all.size() * (all.size() + 1) / 2)));
  at::Tensor copy = filled(all.rank());
  all.broadcast(copy, 1);
  EXPECT_TRUE(at::equal(copy, filled(1)));
  const at::Tensor gathered = all.all_gather(filled(all.rank()));
  EXPECT_TRUE(gathered.is_cuda());
  EXPECT_TRUE(at::equal(gathered[1], filled(1)));
  EXPECT_TRUE(
      at::equal(all.reduce_scatter(filled(1).expand({all.size(), 2, 1000})), filled(all.size())));
  const std::vector<std::int64_t> one(static_cast<std::size_t>(all.size()), 1);
  const at::Tensor rows = at::full({all.size(), 3}, all.rank(), at::kCUDA);
  EXPECT_TRUE(
      at::equal(all.all_to_all(rows, one, one).select(1, 0), at::arange(all.size(), at::kCUDA)));
  at::Tensor received = filled(-1);
  Pending sent = all.send(filled(all.rank()), (all.rank() + 1) % all.size(), 2);
  Pending here = all.receive(received, (all.rank() + all.size() - 1) % all.size(), 2);
  here.wait();
  sent.wait();
  EXPECT_TRUE(at::equal(received, filled((all.rank() + all.size() - 1) % all.size())));
}

}  // namespace
}  // namespace spillway::testing
