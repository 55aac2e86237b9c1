/// What goes from stage to stage: several tensors, some without gradients, of sizes that change.
/// Run under mpirun; every rank is a stage.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "pipeline_models.hpp"
#include "spillway/comm/topology.hpp"
#include "spillway/torch/host_memory.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using ::testing::IsEmpty;
using namespace spillway::literals;
using testing::descend;
using testing::different;
using testing::ranks;
using testing::Trained;
using testing::weights_of;

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kVocabulary = 31;

/// From tokens to values, gates, and the tokens themselves.
struct Entry : torch::nn::Module {
  Entry() : embedding(register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth))) {}
  [[nodiscard]] Tensors forward(const Tensors& inputs) {
    const at::Tensor x = embedding->forward(inputs.at(0));
    return {x, at::sigmoid(x.narrow(2, 0, 1)), inputs.at(0)};
  }
  torch::nn::Embedding embedding;
};

/// Uses all three. If it trims, how much is left depends on the tokens.
struct Middle : torch::nn::Module {
  explicit Middle(bool trims)
      : linear(register_module("linear", torch::nn::Linear(kWidth, kWidth))), trims_(trims) {}
  [[nodiscard]] Tensors forward(const Tensors& inputs) {
    const at::Tensor& tokens = inputs.at(2);
    const at::Tensor x = inputs.at(0) + inputs.at(1) * at::tanh(linear->forward(inputs.at(0)));
    const at::Tensor gates = inputs.at(1) * (tokens.unsqueeze(2).to(at::kFloat) / kVocabulary);
    if (!trims_) return {x, gates, tokens};
    const std::int64_t left = tokens.size(1) - tokens[0][0].item<std::int64_t>() % 3;
    return {x.narrow(1, 0, left).contiguous(), gates.narrow(1, 0, left).contiguous(),
            tokens.narrow(1, 0, left).contiguous()};
  }
  torch::nn::Linear linear;

 private:
  bool trims_;
};

struct Exit : torch::nn::Module {
  Exit() : linear(register_module("linear", torch::nn::Linear(kWidth, 1))) {}
  [[nodiscard]] Tensors forward(const Tensors& inputs) {
    return {(linear->forward(inputs.at(0)) + inputs.at(1)).mean(at::IntArrayRef{1, 2})};
  }
  torch::nn::Linear linear;
};

PipelineLayer make_model(int stages, int stage, int chunks, bool trims) {
  std::vector<LayerDesc> layers = {describe_layer<Entry>("entry")};
  for (int i = 0; i < 6; ++i) {
    layers.push_back(describe_layer<Middle>("layers." + std::to_string(i), trims));
  }
  layers.push_back(describe_layer<Exit>("exit"));
  PipelineLayerOptions options;
  options.num_stages = stages;
  options.stage = stage;
  options.chunks = chunks;
  options.loss_fn = [](const at::Tensor& output, const at::Tensor& target) {
    return (output - target).pow(2).mean();
  };
  options.seed = 3;
  return {std::move(layers), std::move(options)};
}

/// Sizes change from step to step, and within a step from micro-batch to micro-batch.
std::vector<MicroBatch> batches_of(int step) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t rows = 2 + step % 2;
    const std::int64_t length = 20 + 3 * step + i % 2;
    const at::Tensor tokens =
        (at::arange(rows * length, at::kLong).view({rows, length}) * (7 + i) + step) % kVocabulary;
    batches.push_back({{tokens}, at::full({rows}, 0.1 * i)});
  }
  return batches;
}

Trained train(PipelineLayer& model, PipelineGroups groups, bool shapes_every_time,
              Session* session) {
  PipelineRunner runner(model, std::move(groups), {.shapes_every_time = shapes_every_time});
  if (session != nullptr) session->register_model(model);
  Trained trained;
  for (int step = 0; step < 5; ++step) {
    runner.zero_gradients();
    const StepOutcome outcome = runner.train(batches_of(step), session);
    trained.losses.push_back(runner.mean_loss(outcome).item<double>());
    descend(model);
  }
  trained.weights = weights_of(model);
  return trained;
}

class Messages : public ::testing::TestWithParam<int> {
 protected:
  /// Trains on all ranks and in one process, and compares.
  static void compare(bool trims, bool shapes_every_time, Session* session) {
    const Topology topology(ranks().size(), {.pipeline = ranks().size()});
    PipelineLayer whole = make_model(1, 0, 1, trims);
    const Trained wanted = train(whole, {}, false, nullptr);
    PipelineLayer model = make_model(ranks().size(), ranks().rank(), GetParam(), trims);
    const Trained found =
        train(model, make_pipeline_groups(ranks(), topology, model), shapes_every_time, session);
    EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty());
    EXPECT_EQ(found.losses, wanted.losses);
    EXPECT_NE(wanted.losses.front(), wanted.losses.back());
  }

  static Session offloading() {
    SessionOptions options;
    options.device = at::kCPU;
    options.small = Bytes(256);
    options.host = 16_MiB;
    options.offload_window = options.prefetch_window = 4_KiB;
    options.rules = parse_rules("[[rule]]\naction = 'offload'\n", "a test");
    return Session(std::move(options));
  }
};

TEST_P(Messages, OfSeveralTensorsHaveOtherSizesInEveryStep) {
  compare(/*trims=*/false, /*shapes_every_time=*/false, nullptr);
  Session session = offloading();
  compare(/*trims=*/false, /*shapes_every_time=*/false, &session);
  EXPECT_THAT(session.report().fallbacks, IsEmpty()) << session.report();
  EXPECT_GT(session.report().bytes_out, 0_B);
}

TEST_P(Messages, MayHaveSizesThatDependOnWhatIsInThem) {
  compare(/*trims=*/true, /*shapes_every_time=*/true, nullptr);
  Session session = offloading();
  compare(/*trims=*/true, /*shapes_every_time=*/true, &session);
  EXPECT_THAT(session.report().fallbacks, IsEmpty()) << session.report();
}

/// A first step, in which stages exchange shapes, keeps some messages that have left, not all of
/// them.
TEST(FirstStep, DoesNotKeepWhatItHasSent) {
  constexpr std::int64_t kMicroBatches = 24;
  constexpr std::int64_t kRows = 8;
  constexpr std::int64_t kLength = 2048;
  constexpr std::uint64_t kMessage = kRows * kLength * kWidth * sizeof(float);
  count_host_memory();
  const Topology topology(ranks().size(), {.pipeline = ranks().size()});
  PipelineLayer model = make_model(ranks().size(), ranks().rank(), 1, false);
  PipelineRunner runner(model, make_pipeline_groups(ranks(), topology, model));
  const at::Tensor tokens = at::arange(kRows * kLength, at::kLong).view({kRows, kLength});
  const std::vector<MicroBatch> batches(kMicroBatches,
                                        {{tokens.remainder(kVocabulary)}, at::full({kRows}, 0.1)});
  const auto peak_of_step = [&] {
    runner.zero_gradients();
    const Bytes before = host_memory();
    (void)start_host_memory_peak();
    (void)runner.train(batches, nullptr);
    return host_memory_peak() - before;
  };
  const Bytes first = peak_of_step();
  const Bytes second = peak_of_step();
  EXPECT_GT(second, Bytes(kMessage));
  EXPECT_LE(first, second + Bytes(8 * kMessage)) << to_string(first) << ", " << to_string(second);
}

INSTANTIATE_TEST_SUITE_P(Chunks, Messages, ::testing::Values(1, 2));

}  // namespace
}  // namespace spillway
