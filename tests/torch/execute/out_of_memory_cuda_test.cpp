// A device without memory for one more tensor: what fails where, and that the next step is right.
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "spillway/cuda/cuda_device.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kTensorElements = 16 << 20;
constexpr std::size_t kTensorBytes = kTensorElements * sizeof(float);  // 64 MiB.

std::int64_t allocated_on_device() {
  c10::cuda::device_synchronize();
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
}

/// As long as it lives there is room for so many more tensors, and for half of one.
class Room {
 public:
  explicit Room(int tensors) {
    // Cached memory would be used first.
    c10::cuda::CUDACachingAllocator::emptyCache();
    const auto statistics = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    const double wanted = static_cast<double>(statistics.reserved_bytes[0].current) +
                          (tensors + 0.5) * static_cast<double>(kTensorBytes);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(
        std::min(wanted / static_cast<double>(total), 1.0), 0);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { c10::cuda::CUDACachingAllocator::setMemoryFraction(1.0, 0); }
};

at::Tensor new_tensor() {
  return at::empty({kTensorElements}, at::TensorOptions(at::Device(at::kCUDA, 0)));
}

/// Where the device runs out of memory.
enum class NoMemory {
  kNowhere,
  kInForward,    ///< For a tensor of the model.
  kInBackward,   ///< The same.
  kForPrefetch,  ///< For a tensor that backward does not read yet.
  kForRead,      ///< For a tensor that backward reads now.
};

/// A sine.
struct Sine : torch::autograd::Function<Sine> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, NoMemory where) {
    context->save_for_backward({x});
    context->saved_data["where"] = static_cast<std::int64_t>(where);
    if (where == NoMemory::kInForward) allocate_too_much();
    return x.sin();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto where = static_cast<NoMemory>(context->saved_data["where"].toInt());
    at::Tensor x;
    {
      std::optional<Room> room;
      if (where == NoMemory::kForRead) room.emplace(0);
      if (where == NoMemory::kForPrefetch) room.emplace(1);
      x = context->get_saved_variables()[0];
    }
    if (where == NoMemory::kInBackward) allocate_too_much();
    return {gradients[0] * x.cos(), at::Tensor()};
  }

 private:
  static void allocate_too_much() {
    const Room room(0);
    (void)new_tensor();
  }
};

constexpr int kLayersOfSines = 6;

at::Tensor sines(const at::Tensor& weight, int step, NoMemory where) {
  at::Tensor x = weight * (1 + 0.125 * step);
  for (int i = 0; i < kLayersOfSines; ++i) {
    // The last one's backward is the first. In forward, others have been saved before.
    const bool here = i == (where == NoMemory::kInForward ? 3 : kLayersOfSines - 1);
    x = Sine::apply(x * 1.5, here ? where : NoMemory::kNowhere);
  }
  return x.sum();
}

class CudaOutOfMemory : public ::testing::Test {
 protected:
  using LossOfStep = std::function<at::Tensor(const at::Tensor& weight, int step)>;

  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
    at::manual_seed(3);
    weight_ = at::randn({kTensorElements}, at::TensorOptions(at::Device(at::kCUDA, 0)))
                  .set_requires_grad(true);
  }

  static SessionOptions options(const std::string& rules, Bytes prefetch = 1_GiB) {
    SessionOptions options;
    options.rules = parse_rules(rules, "test.toml");
    options.device = at::Device(at::kCUDA, 0);
    options.host = 2_GiB;
    options.offload_window = 0_B;
    options.prefetch_window = prefetch;
    return options;
  }

  [[nodiscard]] Session session(SessionOptions options) const {
    Session made(std::move(options));
    made.register_fixed(weight_, FixedReason::kParameter);
    return made;
  }

  at::Tensor gradient(const LossOfStep& loss, int step) {
    weight_.mutable_grad() = at::Tensor();
    loss(weight_, step).backward();
    at::Tensor found = weight_.grad().cpu();
    weight_.mutable_grad() = at::Tensor();
    return found;
  }
  at::Tensor gradient(Session& session, const LossOfStep& loss, int step) {
    Step scope = session.step();
    at::Tensor found = gradient(loss, step);
    scope.end();
    return found;
  }
  bool equal(Session& session, const LossOfStep& loss, int step) {
    return gradient(session, loss, step).equal(gradient(loss, step));
  }

  testing::Deterministic deterministic_;
  at::Tensor weight_;
};

const std::string kOffload = "[[rule]]\naction = \"offload\"\n";
const std::string kRecompute = "[[rule]]\naction = \"recompute\"\n";
const std::string kRecomputeSinesOnly =
    "[[rule]]\nproducer = \"aten::sin\"\naction = \"recompute\"\n[[rule]]\naction = \"keep\"\n";

TEST_F(CudaOutOfMemory, ThereIsRoomForAsMuchAsATestWants) {
  const Room room(1);
  const at::Tensor one = new_tensor();
  EXPECT_THROW((void)new_tensor(), c10::OutOfMemoryError);
}

TEST_F(CudaOutOfMemory, APrefetchWithoutMemoryIsLeftForLater) {
  NoMemory where = NoMemory::kNowhere;
  const LossOfStep loss = [&](const at::Tensor& weight, int step) {
    return sines(weight, step, where);
  };
  Session session = this->session(options(kOffload));
  for (int i = 0; i < 6; ++i) {
    const at::Tensor right = gradient(loss, i);
    where = i < 1 ? NoMemory::kNowhere : NoMemory::kForPrefetch;
    EXPECT_TRUE(gradient(session, loss, i).equal(right)) << i << session.report();
    where = NoMemory::kNowhere;
  }
  const SessionReport report = session.report();
  EXPECT_GT(report.bytes_back, 0_B) << report;
  EXPECT_THAT(report.fallbacks,
              Contains(Pair("no device memory to prefetch a buffer: reloaded when it was needed",
                            ::testing::Ge(4U))));
}

TEST_F(CudaOutOfMemory, ARootThatCannotBeCopiedIsAnErrorOfItsReplays) {
  bool fails = false;
  const LossOfStep loss = [&](const at::Tensor& weight, int step) {
    const at::Tensor x = weight * (1 + 0.125 * step);
    const at::Tensor y = x.sin();
    const at::Tensor z = y.cos();
    // The session copies x here, because y is recomputed from it.
    std::optional<Room> room;
    if (fails) room.emplace(0);
    x.variable_data().add_(1);
    room.reset();
    return z.sum();
  };
  Session session = this->session(options(kRecomputeSinesOnly));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(equal(session, loss, i)) << i << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U);
  fails = true;
  EXPECT_THAT(
      testing::error_text<c10::Error>([&] { (void)gradient(session, loss, 4); }),
      HasSubstr("the operators of its forward pass are not all known (aten::add_: CUDA out of"));
  fails = false;
  for (int i = 5; i < 7; ++i) EXPECT_TRUE(equal(session, loss, i)) << i << session.report();
  EXPECT_THAT(session.report().fallbacks,
              Contains(Pair(HasSubstr("an operator could not be recorded: aten::add_"), 1U)));
}

/// The exception passes, the next steps are right, and nothing is left.
TEST_F(CudaOutOfMemory, ErrorsPassUnchangedAndLeaveNothing) {
  NoMemory where = NoMemory::kNowhere;
  const LossOfStep loss = [&](const at::Tensor& weight, int step) {
    return sines(weight, step, where);
  };
  (void)gradient(loss, 0);
  const std::int64_t before = allocated_on_device();
  for (const std::string& rules : {kOffload, kRecompute}) {
    for (const Bytes prefetch : {0_B, 1_GiB}) {
      for (const NoMemory failing :
           {NoMemory::kInForward, NoMemory::kInBackward, NoMemory::kForRead}) {
        SCOPED_TRACE(rules + to_string(prefetch) + " " + std::to_string(static_cast<int>(failing)));
        {
          Session session = this->session(options(rules, prefetch));
          for (int i = 0; i < 3; ++i) EXPECT_TRUE(equal(session, loss, i)) << i;
          where = failing;
          EXPECT_THROW((void)gradient(session, loss, 3), c10::OutOfMemoryError);
          where = NoMemory::kNowhere;
          for (int i = 4; i < 7; ++i) EXPECT_TRUE(equal(session, loss, i)) << i;
          const SessionReport report = session.report();
          EXPECT_EQ(report.device_now, 0_B) << report;
          EXPECT_EQ(report.host_now, 0_B) << report;
          EXPECT_TRUE(report.demoted.empty()) << report;
        }
        weight_.mutable_grad() = at::Tensor();
        EXPECT_EQ(allocated_on_device(), before);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
