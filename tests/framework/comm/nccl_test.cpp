// NCCL with one rank, which is what one GPU can do: the store, the communicator and its
// collectives.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/nccl/nccl_group.hpp"
#include "spillway/comm/world.hpp"
#include "support/error_text.hpp"

namespace spillway::testing {
namespace {

TEST(Nccl, SumsOverOneRank) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
  const auto group = make_nccl_group(c10::make_intrusive<c10d::HashStore>(), "one", 0, 1, 0,
                                     std::chrono::seconds(60));
  std::vector<at::Tensor> tensors{at::arange(1000, at::kCUDA).to(at::kBFloat16)};
  const at::Tensor before = tensors[0].clone();
  const auto backend = group->getBackend(c10::DeviceType::CUDA);
  EXPECT_EQ(backend->getBackendName(), "nccl");
  backend->allreduce(tensors)->wait();
  EXPECT_TRUE(at::equal(tensors[0], before));
  at::Tensor output = at::empty_like(before);
  at::Tensor input = before.clone();
  backend->_allgather_base(output, input)->wait();
  EXPECT_TRUE(at::equal(output, before));
  group->shutdown();
}

TEST(Nccl, MakesAWorldOfOneRank) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
  const auto world = make_nccl_world(make_single_world());
  EXPECT_EQ(world->size(), 1);
  at::Tensor tensor = at::ones({3}, at::kCUDA);
  world->everyone().all_reduce(tensor);
  EXPECT_TRUE(at::equal(tensor, at::ones({3}, at::kCUDA)));
}

TEST(Nccl, RefusesADeviceThatIsNotThere) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
  const NcclAddress address{.host = "localhost", .port = 0, .rank = 0, .size = 1, .local_rank = 99};
  EXPECT_THAT(error_text<InvalidArgument>([&] { (void)make_nccl_world(address); }),
              ::testing::StartsWith("[nccl] there is no CUDA device 99, this machine has "));
}

}  // namespace
}  // namespace spillway::testing
