// Programs on two streams of which one is slow: what a session offloads, reloads, recomputes,
// compares and frees must be ordered on both. A long kernel stands in front of each read that must
// not be overtaken, and the other stream writes at once into memory that it is given, so that
// without ordering a gradient is wrong.
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/cuda/Sleep.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "spillway/cuda/cuda_device.hpp"
#include "spillway/torch/session.hpp"
#include "support/random_cases.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using c10::cuda::CUDAStream;
using testing::count_different;

constexpr int kSteps = 6;
constexpr std::int64_t kElements = 2 << 20;
constexpr std::size_t kBytes = kElements * sizeof(float);  // Large enough for a copy of its own.
constexpr std::int64_t kCycles = 20'000'000;               // About 10 ms.

/// Writes NaNs into memory that the allocator has for the current stream, until it was given
/// `wanted`, if there is such memory.
void overwrite_free_memory(const void* wanted) {
  constexpr std::size_t kMostBlocks = 32;
  const CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  std::vector<void*> taken;
  while (taken.size() < kMostBlocks && (taken.empty() || taken.back() != wanted)) {
    taken.push_back(
        c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(kBytes, stream.stream()));
    EXPECT_EQ(cudaMemsetAsync(taken.back(), 0xff, kBytes, stream.stream()), cudaSuccess);
  }
  for (void* const each : taken) c10::cuda::CUDACachingAllocator::raw_delete(each);
}

/// The default stream and another one. The owner makes what the guest reads, too.
class TwoStreams {
 public:
  /// `serial`: all work runs on the default stream, none of it is slow, and no memory is
  /// overwritten. The results are the same: that is the baseline.
  TwoStreams(bool serial, bool owner_is_default)
      : serial_(serial), owner_is_default_(owner_is_default) {}

  template <typename Work>
  void on_owner(Work&& work) const {
    on(owner(), work);
  }
  template <typename Work>
  void on_guest(Work&& work) const {
    on(guest(), work);
  }
  /// The second one starts after what the first one has been given.
  void other_waits_for_default() const { order(default_, other_); }
  void default_waits_for_other() const { order(other_, default_); }
  void guest_waits_for_owner() const { order(owner(), guest()); }
  void owner_waits_for_guest() const { order(guest(), owner()); }

  /// The current stream is slow.
  void sleep() const {
    if (!serial_) at::cuda::sleep(kCycles);
  }
  void overwrite(const void* wanted = nullptr) const {
    if (!serial_) overwrite_free_memory(wanted);
  }
  /// As Tensor.record_stream(): its memory is not reused before the guest has come to here.
  void note_guest(const at::Tensor& tensor) const {
    if (serial_) return;
    c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), guest());
  }

 private:
  [[nodiscard]] const CUDAStream& owner() const { return owner_is_default_ ? default_ : other_; }
  [[nodiscard]] const CUDAStream& guest() const { return owner_is_default_ ? other_ : default_; }

  template <typename Work>
  void on(const CUDAStream& stream, Work& work) const {
    if (serial_) return work();
    const c10::cuda::CUDAStreamGuard guard(stream);
    work();
  }
  void order(const CUDAStream& first, const CUDAStream& second) const {
    if (serial_) return;
    c10::Event event(at::kCUDA);
    event.record(first.unwrap());
    event.block(second.unwrap());
  }

  bool serial_ = false;
  bool owner_is_default_ = true;
  CUDAStream default_ = c10::cuda::getDefaultCUDAStream();
  CUDAStream other_ = c10::cuda::getStreamFromPool();
};

using Weights = std::vector<at::Tensor>;
using Loss = std::function<at::Tensor(const Weights&, const TwoStreams&, int step)>;

/// Losses and gradients of some steps. Each step of a session is ended here, so that it throws.
std::vector<at::Tensor> train_on(const Loss& loss_of, const TwoStreams& streams, Session* session) {
  at::manual_seed(3);
  const auto options = at::TensorOptions(at::Device(at::kCUDA, 0));
  Weights weights;
  for (int i = 0; i < 2; ++i) {
    weights.push_back(at::randn({kElements}, options).set_requires_grad(true));
    if (session != nullptr) session->register_fixed(weights[i], FixedReason::kParameter);
  }
  c10::cuda::device_synchronize();
  std::vector<at::Tensor> values;
  for (int i = 0; i < kSteps; ++i) {
    for (at::Tensor& each : weights) each.mutable_grad() = at::Tensor();
    std::optional<Step> step;
    if (session != nullptr) step.emplace(session->step());
    streams.other_waits_for_default();
    at::Tensor loss = loss_of(weights, streams, i);
    loss.backward();
    values.push_back(loss.detach().clone());
    loss.reset();
    if (step) step->end();
    const at::NoGradGuard no_gradients;
    for (at::Tensor& each : weights) {
      if (!each.grad().defined()) continue;
      values.push_back(each.grad().clone());
      each.add_(each.grad().clamp(-1, 1), -0.01);
    }
  }
  c10::cuda::device_synchronize();
  return values;
}

/// How a session treats a program.
struct Action {
  std::string_view name;
  std::string_view action;
  int verify_every = 0;
};

struct Windows {
  std::string_view name;
  Bytes offload;
  Bytes prefetch;
};

SessionOptions options_of(const Action& action, const Windows& windows) {
  SessionOptions options;
  options.rules =
      parse_rules("[[rule]]\naction = \"" + std::string(action.action) + "\"\n", "test.toml");
  options.device = at::Device(at::kCUDA, 0);
  options.small = 1_MiB;
  options.host = 512_MiB;
  options.offload_window = windows.offload;
  options.prefetch_window = windows.prefetch;
  options.verify_every = action.verify_every;
  return options;
}

/// What the session did instead of nothing at all.
void expect_managed(const Session& session, const Action& action, const Windows& windows) {
  const SessionReport report = session.report();
  EXPECT_TRUE(report.demoted.empty()) << report;
  if (action.action == "recompute") {
    EXPECT_GT(report.repeated_calls, 0U) << report;
  } else if (windows.offload == 0_B) {
    EXPECT_GT(report.bytes_back, 0_B) << report;
  }
}

enum class Slow { kNone, kOwner, kGuest };

/// A tensor that the owner makes, and that both streams read and save.
struct SharedTensor {
  std::string_view name;
  bool owner_is_default = true;
  bool owner_reads = true;
  bool guest_reads = true;
  bool guest_first = false;  ///< The guest saves it first, so that its backward runs last.
  bool slow_maker = false;   ///< What makes it waits behind a long kernel.
  bool slow_guest = false;   ///< In forward.
  Slow backward = Slow::kNone;
  bool slow_reload = false;
  /// Its memory is given to others in backward, as soon as that is allowed; else in forward.
  bool reused_in_backward = false;
  bool saves_beside = false;  ///< The default stream saves another tensor meanwhile.
  bool saves_sum = false;     ///< The default stream saves the sum of what was computed.
  bool slow_sum = false;
};

constexpr auto kShared = std::to_array<SharedTensor>({
    // The owner drops the tensor and reuses its memory while the guest still reads it.
    {.name = "OwnerSavesFirst", .slow_guest = true},
    {.name = "GuestSavesFirst", .guest_first = true, .slow_guest = true},
    {.name = "GuestSavesAlone", .owner_reads = false, .slow_guest = true},
    {.name = "DefaultStreamIsGuest", .owner_is_default = false, .slow_guest = true},
    {.name = "DefaultStreamSavesAlone",
     .owner_is_default = false,
     .owner_reads = false,
     .slow_guest = true},
    // Another stream's save releases the tensor before it is made.
    {.name = "ReleasedByAnotherStream",
     .owner_is_default = false,
     .guest_reads = false,
     .slow_maker = true,
     .saves_beside = true},
    // The reader whose backward is first starts the reload or the replay. The other one reads after
    // that, and what was reloaded or recomputed is freed behind both.
    {.name = "SlowOwnerReadsFirst",
     .guest_first = true,
     .backward = Slow::kOwner,
     .reused_in_backward = true},
    {.name = "SlowGuestReadsFirst", .backward = Slow::kGuest, .reused_in_backward = true},
    {.name = "SlowDefaultStreamReadsFirst",
     .owner_is_default = false,
     .backward = Slow::kGuest,
     .reused_in_backward = true},
    {.name = "SlowOwnerReadsLast", .backward = Slow::kOwner, .reused_in_backward = true},
    {.name = "SlowGuestReadsLast",
     .guest_first = true,
     .backward = Slow::kGuest,
     .reused_in_backward = true},
    // The reload stands behind a long kernel of the stream that saved first.
    {.name = "SlowReloadForTheOwner",
     .guest_first = true,
     .slow_reload = true,
     .reused_in_backward = true},
    {.name = "SlowReloadForTheGuest", .slow_reload = true, .reused_in_backward = true},
    // A prefetch takes memory of the guest that the default stream still reads.
    {.name = "PrefetchedForTheGuest", .guest_first = true, .saves_sum = true, .slow_sum = true},
});

at::Tensor loss_of_shared(const SharedTensor& program, const Weights& weights,
                          const TwoStreams& streams, int step) {
  at::Tensor x;
  at::Tensor by_owner;
  at::Tensor by_guest;
  std::vector<at::Tensor> parts;
  streams.on_owner([&] {
    if (program.slow_maker) streams.sleep();
    x = weights[0] * (1 + 0.125 * step);
    // Its backward runs between the reads of x and the end of x's own.
    if (program.reused_in_backward) parts.push_back(weights[0] * 0.5);
  });
  streams.guest_waits_for_owner();
  streams.on_guest([&] {
    if (program.reused_in_backward) parts.push_back(weights[0] * 0.25);
  });
  for (const at::Tensor& each : parts)
    each.register_hook([streams](const at::Tensor&) { streams.overwrite(); });
  const auto read_by_owner = [&] {
    if (!program.owner_reads) return;
    by_owner = x.sin();
    if (program.backward != Slow::kOwner) return;
    by_owner.register_hook([streams](const at::Tensor&) { streams.sleep(); });
  };
  const auto read_by_guest = [&] {
    if (!program.guest_reads) return;
    if (program.slow_guest) streams.sleep();
    by_guest = x.cos();
    if (program.backward != Slow::kGuest) return;
    by_guest.register_hook([streams](const at::Tensor&) { streams.sleep(); });
  };
  if (program.guest_first) streams.on_guest(read_by_guest);
  streams.on_owner(read_by_owner);
  if (!program.guest_first) streams.on_guest(read_by_guest);
  if (program.slow_reload) {
    const auto sleep = [streams] { streams.sleep(); };
    if (program.guest_first) {
      by_owner.register_hook([=](const at::Tensor&) { streams.on_guest(sleep); });
    } else {
      by_guest.register_hook([=](const at::Tensor&) { streams.on_owner(sleep); });
    }
  }
  if (program.reused_in_backward) {
    // Autograd frees it in backward when the last node has been run by the host.
    streams.note_guest(x);
    streams.owner_waits_for_guest();
    streams.on_guest([&] { streams.overwrite(); });
  }
  const void* const memory = x.const_data_ptr();
  x.reset();
  streams.on_owner([&] { streams.overwrite(memory); });
  if (program.saves_beside) parts.push_back((weights[0] * 0.75).sin());
  streams.default_waits_for_other();
  if (program.slow_sum) streams.sleep();
  at::Tensor sum = by_owner.defined() ? by_owner : by_guest;
  if (by_owner.defined() && by_guest.defined()) sum = by_owner + by_guest;
  for (const at::Tensor& each : parts) sum = sum + each;
  if (program.saves_sum) sum = sum * weights[1];
  return sum.sum();
}

class TwoStreamsOfASession
    : public ::testing::TestWithParam<std::tuple<SharedTensor, Action, Windows>> {
 protected:
  void SetUp() override {
    if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

TEST_P(TwoStreamsOfASession, HaveTheBitsOfOneStream) {
  const testing::Deterministic deterministic;
  const auto& [program, action, windows] = GetParam();
  const Loss loss = [&program = program](const Weights& weights, const TwoStreams& streams,
                                         int step) {
    return loss_of_shared(program, weights, streams, step);
  };
  static std::map<std::string_view, std::vector<at::Tensor>> baselines;
  std::vector<at::Tensor>& expected = baselines[program.name];
  if (expected.empty()) {
    expected = train_on(loss, TwoStreams(true, program.owner_is_default), nullptr);
    for (at::Tensor& each : expected) each = each.cpu();
    for (int i = 0; i < 2; ++i) {
      const auto again = train_on(loss, TwoStreams(false, program.owner_is_default), nullptr);
      ASSERT_EQ(count_different(expected, again), 0) << "the program itself is not ordered";
    }
  }
  Session session(options_of(action, windows));
  const TwoStreams streams(false, program.owner_is_default);
  EXPECT_EQ(count_different(expected, train_on(loss, streams, &session)), 0) << session.report();
  expect_managed(session, action, windows);
}

// A recording step compares what it offloads, so a false VerificationError ends any of them.
constexpr auto kActions = std::to_array<Action>({{"Offload", "offload"},
                                                 {"OffloadVerified", "offload", 1},
                                                 {"Recompute", "recompute"},
                                                 {"RecomputeVerified", "recompute", 2}});

const std::vector<Windows> kWindows{{"NoWindow", 0_B, 0_B},
                                    {"OneBuffer", Bytes(kBytes), Bytes(kBytes)},
                                    {"Prefetch", 0_B, 1_GiB},
                                    {"LargeWindow", 1_GiB, 1_GiB}};

std::string name_of_streams(const ::testing::TestParamInfo<TwoStreamsOfASession::ParamType>& info) {
  const auto& [program, action, windows] = info.param;
  return std::string(program.name) + "_" + std::string(action.name) + "_" +
         std::string(windows.name);
}

INSTANTIATE_TEST_SUITE_P(All, TwoStreamsOfASession,
                         ::testing::Combine(::testing::ValuesIn(kShared),
                                            ::testing::ValuesIn(kActions),
                                            ::testing::ValuesIn(testing::some(kWindows, 3))),
                         &name_of_streams);

/// An operator whose replay is slow, too.
at::Tensor slow_copy(const at::Tensor& x) {
  static const auto registration = c10::RegisterOperators().op(
      "spillway_test::slow_copy(Tensor x) -> Tensor", [](const at::Tensor& value) {
        const at::AutoDispatchBelowADInplaceOrView kernel;
        at::cuda::sleep(kCycles);
        return value * 1.0;
      });
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("spillway_test::slow_copy", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

/// Its backward has the guest overwrite memory between its reads and its end.
struct OverwritesInBackward : torch::autograd::Function<OverwritesInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& gate, const TwoStreams& streams) {
    context->save_for_backward({gate});
    context->saved_data["streams"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(streams));
    return x * gate;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor gate = context->get_saved_variables()[0];
    const auto held = context->saved_data["streams"].toCapsule();
    const TwoStreams& streams = static_cast<const Held&>(*held).streams;
    streams.on_guest([&] { streams.overwrite(); });
    return {gradients[0] * gate, at::Tensor(), at::Tensor()};
  }

 private:
  struct Held : torch::CustomClassHolder {
    explicit Held(const TwoStreams& held) : streams(held) {}
    TwoStreams streams;
  };
};

TEST(TwoStreamsOfReplays, ReadIntermediatesBeforeTheirMemoryIsReused) {
  if (cuda_system().devices.empty()) GTEST_SKIP() << "skipped: no CUDA device";
  const testing::Deterministic deterministic;
  const Loss loss = [](const Weights& weights, const TwoStreams& streams, int step) {
    const at::Tensor x = weights[0] * (1 + 0.125 * step);
    at::Tensor y = x.sin();
    at::Tensor gated = OverwritesInBackward::apply(weights[1], slow_copy(y.detach()), streams);
    streams.guest_waits_for_owner();
    at::Tensor cosine;
    // Its backward runs first: y is recomputed on the guest, and cached for the gate's replay,
    // which is slow to read it on the owner.
    streams.on_guest([&] { cosine = y.cos(); });
    streams.note_guest(y);
    y.reset();
    streams.owner_waits_for_guest();
    return (gated + cosine).sum();
  };
  const std::vector<at::Tensor> expected = train_on(loss, TwoStreams(true, true), nullptr);
  ASSERT_EQ(count_different(expected, train_on(loss, TwoStreams(false, true), nullptr)), 0)
      << "the program itself is not ordered";
  for (const int verify_every : {0, 2}) {
    const Action action{"Recompute", "recompute", verify_every};
    for (const Windows& windows : kWindows) {
      Session session(options_of(action, windows));
      EXPECT_EQ(count_different(expected, train_on(loss, TwoStreams(false, true), &session)), 0)
          << session.report();
      expect_managed(session, action, windows);
    }
  }
}

}  // namespace
}  // namespace spillway
