// Programs that do with their memory what other libraries do: free it between forward and backward,
// put it elsewhere, write into it. Their results must be those without a session. On the CPU and,
// in a program of GPU tests, on CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_cases.hpp"
#include "torch/support/program.hpp"
#include "torch/support/resized_storage.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference_of;
using testing::Program;
using testing::with_rules;

#ifdef SPILLWAY_TEST_CUDA
const at::Device kDevice(at::kCUDA, 0);
constexpr std::int64_t kRows = 512;
#else
const at::Device kDevice(at::kCPU);
constexpr std::int64_t kRows = 64;
#endif
constexpr std::size_t kMatrixBytes = kRows * kRows * sizeof(float);
constexpr int kLayers = 4;
const int kRepeats = testing::cases_of(20, 5);  // A race need not show every time.

void resize(const at::Tensor& tensor, std::size_t bytes) {
  testing::resize_storage(tensor.storage(), bytes);
}

at::Tensor random_matrix() { return at::randn({kRows, kRows}, at::TensorOptions(kDevice)); }

std::vector<at::Tensor> square_weights() {
  std::vector<at::Tensor> all;
  for (int i = 0; i < kLayers; ++i) all.push_back(testing::weight({kRows, kRows}, kDevice));
  return all;
}

/// As Megatron's CheckpointWithoutOutput: the output of the activation is freed when the product
/// has read it, and computed again when the product's gradient is there. Then its owner forgets it.
at::Tensor discard_outputs(const std::vector<at::Tensor>& weights, int step) {
  at::Tensor x = random_matrix();
  for (const at::Tensor& weight : weights) {
    const at::Tensor input = x;
    at::Tensor output = at::gelu(input);
    x = at::mm(output, weight);
    const auto owned = std::make_shared<at::Tensor>(output.detach());
    x.register_hook([input = input.detach(), owned](const at::Tensor&) {
      const at::NoGradGuard no_gradients;
      resize(*owned, kMatrixBytes);
      owned->variable_data().copy_(at::gelu(input));
      owned->reset();
    });
    resize(output, 0);
    output.reset();
    (void)random_matrix();  // Takes the memory that was freed.
  }
  at::Tensor loss = x.square().mean() * (1 + step);
  loss.backward();
  return loss;
}

/// As FSDP2: weights are filled before their use and freed after it, in the same storage.
at::Tensor reshard_weights(const std::vector<at::Tensor>& weights, int step) {
  std::vector<at::Tensor> shards;
  for (const at::Tensor& weight : weights) shards.push_back(weight.detach().clone());
  const auto gather = [&](std::size_t i) {
    const at::NoGradGuard no_gradients;
    resize(weights[i], shards[i].nbytes());
    weights[i].variable_data().copy_(shards[i]);
  };
  at::Tensor x = random_matrix();
  for (const at::Tensor& weight : weights) resize(weight, 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    gather(i);
    x = at::gelu(at::mm(x, weights[i].t()));
    x.register_hook([gather, i, &weights](const at::Tensor&) {
      if (i + 1 < weights.size()) resize(weights[i + 1], 0);
      gather(i);
    });
    resize(weights[i], 0);
    (void)random_matrix();
  }
  at::Tensor loss = x.square().mean() * (1 + step);
  loss.backward();
  for (std::size_t i = 0; i < weights.size(); ++i) gather(i);
  return loss;
}

/// As ZeRO-3: the weight gets other memory before its use, and none after it. What is gathered for
/// backward is a little different, as after an update in between: autograd reads that.
at::Tensor swap_weights(std::vector<at::Tensor>& weights, int step) {
  std::vector<at::Tensor> shards;
  for (const at::Tensor& weight : weights) shards.push_back(weight.detach().clone());
  const auto gather = [&](std::size_t i, double scale) {
    const at::NoGradGuard no_gradients;
    const at::Tensor flat =
        at::empty({kRows * kRows + 128 * static_cast<std::int64_t>(i)}, at::TensorOptions(kDevice));
    at::Tensor whole =
        flat.narrow(0, 64 * static_cast<std::int64_t>(i), kRows * kRows).view({kRows, kRows});
    whole.copy_(shards[i] * scale);
    weights[i].set_data(whole);
  };
  const auto partition = [&](std::size_t i) {
    weights[i].set_data(at::empty({0}, at::TensorOptions(kDevice)));
  };
  at::Tensor x = random_matrix();
  for (std::size_t i = 0; i < weights.size(); ++i) partition(i);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    gather(i, 1);
    x = at::gelu(at::mm(x, weights[i]));
    x.register_hook([gather, i](const at::Tensor&) { gather(i, 1.25); });
    partition(i);
  }
  at::Tensor loss = x.square().mean() * (1 + step);
  loss.backward();
  for (std::size_t i = 0; i < weights.size(); ++i) gather(i, 1);
  return loss;
}

/// A library with memory of its own: it takes the memory back after forward, uses it for something
/// else, and restores its content, at the same address, before backward reads it.
at::Tensor regrow(const std::vector<at::Tensor>& weights, int step) {
  // Never freed: CUDA has ended when statics are.
  static const auto& arena =
      *new at::Tensor(at::empty({kLayers, kRows, kRows}, at::TensorOptions(kDevice)));
  const auto unseen = [](const auto& write) {
    const at::AutoDispatchBelowADInplaceOrView kernel;
    write();
  };
  at::Tensor x = random_matrix();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor part = arena.select(0, static_cast<std::int64_t>(i));
    const at::Tensor memory =
        at::from_blob(part.data_ptr(), {kRows, kRows}, at::TensorOptions(kDevice));
    memory.copy_(at::gelu(x.detach()));
    const at::Tensor kept = memory.clone();
    x = at::mm(x, weights[i]) * memory;
    x.register_hook(
        [part, memory, kept, unseen](const at::Tensor&) { unseen([&] { part.copy_(kept); }); });
    unseen([&] { part.fill_(777); });
  }
  at::Tensor loss = x.square().mean() * (1 + step);
  loss.backward();
  return loss;
}

using RunStep = at::Tensor (*)(std::vector<at::Tensor>& weights, int step);

struct Case {
  const char* name;
  RunStep run;
};

class OwnedMemory : public ::testing::TestWithParam<std::tuple<Case, const char*, Bytes>> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda() && !at::hasCUDA()) GTEST_SKIP() << "skipped: no CUDA device";
  }
  [[nodiscard]] static SessionOptions options() {
    const std::string action = std::get<1>(GetParam());
    SessionOptions options =
        with_rules(action == "budget" ? "" : "[[rule]]\naction = \"" + action + "\"\n");
    options.device = kDevice;
    if (action == "budget") {
      options.budget = Budget(Bytes(kMatrixBytes * 75 / 4));
      options.plan_in_background = false;
    }
    const Bytes window = std::get<2>(GetParam());
    options.offload_window = window;
    options.prefetch_window = window;
    return options;
  }
};

TEST_P(OwnedMemory, HasTheContentThatAutogradWouldRead) {
  const RunStep run = std::get<0>(GetParam()).run;
  const testing::MakeProgram make = [run] {
    Program program;
    program.weights = square_weights();
    program.step = [weights = program.weights, run](Step*, int i) mutable {
      return run(weights, i);
    };
    return program;
  };
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    Session session(options());
    ASSERT_EQ(difference_of(make, session), 0) << "repeat " << repeat << "\n" << session.report();
  }
}

std::string name_of(const ::testing::TestParamInfo<OwnedMemory::ParamType>& info) {
  const std::size_t window = std::get<2>(info.param).count();
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param) + "_" +
         (window == 0              ? "NoWindow"
          : window == kMatrixBytes ? "SmallWindow"
                                   : "LargeWindow");
}

INSTANTIATE_TEST_SUITE_P(
    All, OwnedMemory,
    ::testing::Combine(
        ::testing::Values(Case{"DiscardedOutputs",
                               [](auto& weights, int i) { return discard_outputs(weights, i); }},
                          Case{"ReshardedWeights",
                               [](auto& weights, int i) { return reshard_weights(weights, i); }},
                          Case{"SwappedWeights", &swap_weights},
                          Case{"RegrownMemory",
                               [](auto& weights, int i) { return regrow(weights, i); }}),
        ::testing::Values("keep", "offload", "recompute", "budget"),
        ::testing::Values(0_B, Bytes(kMatrixBytes), 64_MiB)),
    &name_of);

}  // namespace
}  // namespace spillway
