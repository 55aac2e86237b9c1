// Programs that do with their memory what other libraries do: free it between forward and backward,
// put it elsewhere, write into it. Their results must be those without a session.
#include <ATen/native/Resize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_cases.hpp"
#include "torch/support/program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::difference_of;
using testing::Program;
using testing::with_rules;

constexpr std::int64_t kRows = 64;
constexpr int kLayers = 4;
const int kRepeats = testing::cases_of(20, 5);  // A race need not show every time.

void resize(const at::Tensor& tensor, std::size_t bytes) {
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), bytes);
}

std::vector<at::Tensor> square_weights() {
  std::vector<at::Tensor> all;
  for (int i = 0; i < kLayers; ++i) all.push_back(testing::weight({kRows, kRows}));
  return all;
}

/// As Megatron's CheckpointWithoutOutput: the output of the activation is freed when the product
/// has read it, and computed again when the product's gradient is there. Then its owner forgets it.
at::Tensor discard_outputs(const std::vector<at::Tensor>& weights, int step) {
  at::Tensor x = at::randn({kRows, kRows});
  for (const at::Tensor& weight : weights) {
    const at::Tensor input = x;
    at::Tensor output = at::gelu(input);
    x = at::mm(output, weight);
    const auto owned = std::make_shared<at::Tensor>(output.detach());
    x.register_hook([input = input.detach(), owned](const at::Tensor&) {
      const at::NoGradGuard no_gradients;
      resize(*owned, static_cast<std::size_t>(input.numel()) * sizeof(float));
      owned->variable_data().copy_(at::gelu(input));
      owned->reset();
    });
    resize(output, 0);
    output.reset();
    (void)at::randn({kRows, kRows});  // Takes the memory that was freed.
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
  at::Tensor x = at::randn({kRows, kRows});
  for (const at::Tensor& weight : weights) resize(weight, 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    gather(i);
    x = at::gelu(at::mm(x, weights[i].t()));
    x.register_hook([gather, i, &weights](const at::Tensor&) {
      if (i + 1 < weights.size()) resize(weights[i + 1], 0);
      gather(i);
    });
    resize(weights[i], 0);
    (void)at::randn({kRows, kRows});
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
    const at::Tensor flat = at::empty({kRows * kRows + 128 * static_cast<std::int64_t>(i)});
    at::Tensor whole =
        flat.narrow(0, 64 * static_cast<std::int64_t>(i), kRows * kRows).view({kRows, kRows});
    whole.copy_(shards[i] * scale);
    weights[i].set_data(whole);
  };
  const auto partition = [&](std::size_t i) { weights[i].set_data(at::empty({0})); };
  at::Tensor x = at::randn({kRows, kRows});
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
  static std::vector<std::vector<float>> arena(kLayers, std::vector<float>(kRows * kRows));
  at::Tensor x = at::randn({kRows, kRows});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor memory = at::from_blob(arena[i].data(), {kRows, kRows}, at::kFloat);
    memory.copy_(at::gelu(x.detach()));
    const at::Tensor kept = memory.clone();
    x = at::mm(x, weights[i]) * memory;
    x.register_hook([i, memory, kept](const at::Tensor&) {
      std::copy_n(kept.const_data_ptr<float>(), kept.numel(), arena[i].data());
    });
    std::fill(arena[i].begin(), arena[i].end(), 777.0F);
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
  [[nodiscard]] static SessionOptions options() {
    const std::string action = std::get<1>(GetParam());
    SessionOptions options =
        with_rules(action == "budget" ? "" : "[[rule]]\naction = \"" + action + "\"\n");
    if (action == "budget") {
      options.budget = Budget(300_KiB);
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
         (window == 0        ? "NoWindow"
          : window < 100'000 ? "SmallWindow"
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
        ::testing::Values(0_B, 16_KiB, 64_MiB)),
    &name_of);

}  // namespace
}  // namespace spillway
