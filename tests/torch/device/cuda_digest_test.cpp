#include "torch/device/cuda_digest.hpp"

#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

class CudaDigest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "skipped: no CUDA device";
  }

  static at::Tensor digest(const at::Tensor& tensor) {
    const at::Tensor number = at::empty({}, tensor.options().dtype(at::kLong));
    cuda_digest(tensor.storage(), ByteRange::whole(tensor.storage()), number);
    return number;
  }
  static std::int64_t number(const at::Tensor& tensor) {
    return digest(tensor).item<std::int64_t>();
  }
  static at::Tensor bytes(std::int64_t size) {
    return at::randint(256, {size}, at::TensorOptions(at::kByte).device(at::kCUDA));
  }
};

TEST_F(CudaDigest, IsEqualForEqualBits) {
  // Words only, a tail, less than a word, more than all threads take at once, nothing.
  for (const std::int64_t size : {8 * 256, 1001, 3, 2048 * 256 * 8 * 3 + 5, 0}) {
    const at::Tensor tensor = bytes(size);
    const std::int64_t first = number(tensor);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(number(tensor.clone()), first) << size;
  }
}

// A copy comes back to memory that the allocator aligned, whatever the original had.
TEST_F(CudaDigest, DoesNotDependOnWhereMemoryBegins) {
  const at::Tensor tensor = bytes(2003 + 8);
  for (std::int64_t offset = 0; offset < 8; ++offset) {
    const at::Tensor copy = tensor.slice(0, offset, offset + 2003).clone();
    const at::Tensor unaligned =
        at::for_blob(static_cast<std::uint8_t*>(tensor.mutable_data_ptr()) + offset, {2003})
            .options(tensor.options())
            .target_device(tensor.device())
            .make_tensor();
    EXPECT_EQ(number(unaligned), number(copy)) << offset;
  }
}

TEST_F(CudaDigest, ChangesWithEveryByte) {
  const at::Tensor tensor = bytes(2003);
  std::set<std::int64_t> seen = {number(tensor)};
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const at::Tensor other = tensor.clone();
    other[i].bitwise_xor_(1);
    EXPECT_TRUE(seen.insert(number(other)).second) << i;
  }
}

TEST_F(CudaDigest, TellsBitsApartWithoutAKernel) {
  const at::Tensor tensor = bytes(1001);
  const auto on_host = [](const at::Tensor& each) {
    const at::Tensor number = at::empty({}, each.options().dtype(at::kLong));
    cuda_digest_on_host(each.storage(), ByteRange::whole(each.storage()), number);
    return number.item<std::int64_t>();
  };
  EXPECT_EQ(on_host(tensor.clone()), on_host(tensor));
  const at::Tensor other = tensor.clone();
  other[1000].bitwise_xor_(1);
  EXPECT_NE(on_host(other), on_host(tensor));
}

TEST_F(CudaDigest, IsThatOfAPart) {
  const at::Tensor tensor = bytes(2003);
  const at::Tensor part = tensor.slice(0, 301, 1405);
  const at::Tensor copy = part.clone();
  const auto numbers = [](const at::Tensor& each) {
    const at::Tensor one = at::empty({}, each.options().dtype(at::kLong));
    const at::Tensor other = at::empty_like(one);
    cuda_digest(each.storage(), ByteRange::of(each), one);
    cuda_digest_on_host(each.storage(), ByteRange::of(each), other);
    return std::pair(one.item<std::int64_t>(), other.item<std::int64_t>());
  };
  const auto before = numbers(part);
  EXPECT_EQ(numbers(copy), before);
  tensor.slice(0, 0, 301).zero_();
  tensor.slice(0, 1405).zero_();
  EXPECT_EQ(numbers(part), before);
  part[1103].bitwise_xor_(1);
  EXPECT_NE(numbers(part).first, before.first);
  EXPECT_NE(numbers(part).second, before.second);
}

TEST_F(CudaDigest, ChangesWithOrderAndSize) {
  const at::Tensor tensor = at::arange(64, at::TensorOptions(at::kLong).device(at::kCUDA));
  EXPECT_NE(number(tensor), number(tensor.flip(0)));
  const auto zeros = [](std::int64_t size) {
    return at::zeros({size}, at::TensorOptions(at::kByte).device(at::kCUDA));
  };
  EXPECT_NE(number(zeros(16)), number(zeros(24)));
  EXPECT_NE(number(zeros(17)), number(zeros(18)));
}

TEST_F(CudaDigest, WaitsForWhatIsQueuedOnTheStream) {
  at::Tensor tensor = at::ones({1 << 24}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  const std::int64_t ones = number(tensor);
  for (int i = 0; i < 20; ++i) tensor.mul_(2);
  const at::Tensor later = digest(tensor);
  for (int i = 0; i < 20; ++i) tensor.mul_(0.5);
  EXPECT_EQ(number(tensor), ones);
  EXPECT_NE(later.item<std::int64_t>(), ones);
}

}  // namespace
}  // namespace spillway
