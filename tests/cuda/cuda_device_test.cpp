#include "spillway/cuda/cuda_device.hpp"

#include <thread>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/device_conformance.hpp"
#include "spillway/core/error.hpp"
#include "support/counting_device.hpp"
#include "support/error_text.hpp"
#include "support/faulty_device.hpp"
#include "support/registered_memory.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::DeviceCase;
using testing::DeviceConformance;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool has_device() { return !cuda_system().devices.empty(); }

/// A wrapper together with the device it wraps; null without a GPU.
template <typename Wrapper, typename... Arguments>
std::shared_ptr<Device> wrapped(Arguments... arguments) {
  struct Both {
    CudaDevice cuda{0};
    Wrapper wrapper;
    explicit Both(Arguments... each) : wrapper(cuda, each...) {}
  };
  if (!has_device()) return nullptr;
  auto both = std::make_shared<Both>(arguments...);
  return {both, &both->wrapper};
}

DeviceCase cuda_case(std::string name, std::function<std::shared_ptr<Device>()> make) {
  return {std::move(name), std::move(make), false, "skipped: no CUDA device"};
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, DeviceConformance,
    ::testing::Values(cuda_case("Cuda",
                                []() -> std::shared_ptr<Device> {
                                  return has_device() ? std::make_shared<CudaDevice>(0) : nullptr;
                                }),
                      cuda_case("Counting", [] { return wrapped<testing::CountingDevice>(); }),
                      cuda_case("Faulty",
                                [] {
                                  return wrapped<testing::FaultyDevice>(testing::FaultOptions{});
                                })),
    testing::case_name);

TEST(CudaSystem, SaysWhyThereIsNoDeviceOrDescribesThem) {
  const CudaSystem system = cuda_system();
  EXPECT_GT(system.runtime_version, 0);
  if (system.devices.empty()) {
    EXPECT_FALSE(system.problem.empty());
    return;
  }
  EXPECT_TRUE(system.problem.empty());
  EXPECT_FALSE(system.devices[0].name.empty());
  EXPECT_GT(system.devices[0].memory, 1_GiB);
  EXPECT_GT(system.devices[0].copy_engines, 0);
}

TEST(CudaDevice, SaysWhichDevicesThereAreWhenTheWantedOneIsNotThere) {
  if (has_device()) {
    EXPECT_THAT(error_text<InvalidArgument>([] { const CudaDevice device(4711); }),
                ::testing::AllOf(StartsWith("[cuda] device 4711 wanted, but there "),
                                 HasSubstr("only device"), HasSubstr("choose one of these")));
    EXPECT_THAT(error_text<InvalidArgument>([] { const CudaDevice device(-1); }),
                StartsWith("[cuda] device -1 wanted, but there "));
  } else {
    EXPECT_THAT(
        error_text<InvalidArgument>([] { const CudaDevice device(0); }),
        ::testing::AllOf(StartsWith("[cuda] device 0 wanted, but there is no CUDA device ("),
                         HasSubstr("spillway doctor"), HasSubstr("use the host device")));
  }
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

TEST_F(CudaDeviceTest, SaysWhenDeviceMemoryIsFull) {
  CudaDevice device(0);
  EXPECT_THAT(error_text<OutOfMemory>([&] { (void)device.allocate(Bytes(1ULL << 50U)); }),
              ::testing::AllOf(StartsWith("[allocate] cuda:0 answered cudaErrorMemoryAllocation"),
                               HasSubstr("lower the budget or free device memory")));
  EXPECT_NE(device.allocate(1_MiB).data(), nullptr);  // The error did not stick.
}

TEST_F(CudaDeviceTest, RefusesACopyAcrossSeparatelyRegisteredMemory) {
  // Why leases hand out pieces: see Lease::for_each_piece().
  CudaDevice device(0);
  const auto stream = device.make_stream("s");
  const DeviceBuffer buffer = device.allocate(8_KiB);
  stream->fill(buffer.data(), std::byte{1}, 8_KiB);
  std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, 8192)), &std::free);
  const HostRegistration low = device.register_host({memory.get(), 4096});
  const HostRegistration high = device.register_host({memory.get() + 4096, 4096});
  EXPECT_THAT(error_text<DeviceError>(
                  [&] { stream->copy(memory.get(), buffer.data(), 8_KiB, CopyKind::kToHost); }),
              StartsWith("[copy] cuda:0 answered cudaErrorInvalidValue"));
  stream->copy(memory.get(), buffer.data(), 4_KiB, CopyKind::kToHost);
  stream->copy(memory.get() + 4096, buffer.data() + 4096, 4_KiB, CopyKind::kToHost);
  stream->synchronize();
}

TEST_F(CudaDeviceTest, BorrowsAStreamAndLeavesItAlive) {
  CudaDevice device(0);
  cudaStream_t handle = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess);
  const DeviceBuffer buffer = device.allocate(4_KiB);
  const testing::RegisteredMemory result(device, 4_KiB);
  {
    const auto stream = device.borrow_stream(handle, "theirs");
    stream->fill(buffer.data(), std::byte{3}, 4_KiB);
  }
  ASSERT_EQ(cudaMemcpyAsync(result.data(), buffer.data(), 4096, cudaMemcpyDeviceToHost, handle),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(handle), cudaSuccess);
  EXPECT_EQ(result.span().back(), std::byte{3});
  EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess);
}

TEST_F(CudaDeviceTest, SynchronizesAStreamWhileAnotherThreadCapturesOne) {
  CudaDevice device(0);
  const auto stream = device.make_stream("s");
  cudaStream_t captured = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] { EXPECT_NO_THROW(stream->synchronize()); }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(captured), cudaSuccess);
}

TEST_F(CudaDeviceTest, LeavesTheCurrentDeviceAsItWas) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) GTEST_SKIP() << "skipped: only one CUDA device";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  CudaDevice device(1);
  const auto stream = device.make_stream("s");
  const auto event = device.make_event(Timing::kOff);
  const DeviceBuffer buffer = device.allocate(4_KiB);
  stream->fill(buffer.data(), std::byte{1}, 4_KiB);
  stream->record(*event);
  device.synchronize();
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

}  // namespace
}  // namespace spillway
