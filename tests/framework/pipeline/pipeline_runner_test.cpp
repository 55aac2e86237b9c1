#include "spillway/pipeline/pipeline_runner.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline_models.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "torch/support/training.hpp"
#include "torch/support/unseen_write.hpp"

namespace spillway {
namespace {

using testing::different;
using testing::error_text;
using ::testing::IsEmpty;
using testing::make_batches;
using testing::make_model;
using testing::PipelineCase;
using testing::train_alone;
using testing::train_in;
using testing::Trained;
using testing::TrainingCase;

/// The mean loss over all targets, by autograd alone: layers one after another, no runner.
TEST(PipelineRunner, GivesTheGradientsOfTheMeanLoss) {
  PipelineLayer model = make_model({.layers = 2});
  PipelineRunner runner(model, {});
  const auto batches = make_batches(0, 0, 3, /*uneven=*/true);
  const at::Tensor loss = runner.train(batches).loss;
  std::vector<at::Tensor> found;
  for (const at::Tensor& parameter : model.parameters()) found.push_back(parameter.grad().clone());

  double targets = 0;
  for (const MicroBatch& batch : batches) targets += static_cast<double>(batch.target.numel());
  at::Tensor wanted = at::zeros({}, at::kDouble);
  runner.zero_gradients();
  for (const MicroBatch& batch : batches) {
    const at::Tensor part = model.loss(model.forward(0, batch.inputs, 0)[0], batch.target) *
                            (static_cast<double>(batch.target.numel()) / targets);
    part.backward();
    wanted += part.detach();
  }
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-6);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i], model.parameters()[i].grad(), 1e-4, 1e-7))
        << model.stage_parameters()[i].name;
  }
}

TEST(PipelineRunner, HasTheSameBitsForEveryNumberOfChunksAndEverySchedule) {
  for (const char* kind : {"llama", "gpt"}) {
    const PipelineCase alone{.model = kind, .dropout = 0.2};
    const TrainingCase training{.micro_batches = 5, .uneven = true};
    const Trained wanted = train_alone(alone, training);
    for (const int chunks : {2, 4}) {
      for (const ScheduleKind schedule :
           {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe}) {
        PipelineCase split = alone;
        split.chunks = chunks;
        PipelineLayer model = make_model(split);
        TrainingCase same = training;
        same.schedule = schedule;
        const Trained found = train_in(model, {}, same);
        EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty()) << kind << chunks;
        EXPECT_EQ(found.losses, wanted.losses);
      }
    }
  }
}

TEST(PipelineRunner, LearnsSomething) {
  PipelineLayer model = make_model({.layers = 2});
  PipelineRunner runner(model, {});
  const auto batches = make_batches(0, 0, 2);
  const double before = runner.evaluate(batches).loss.item<double>();
  for (int i = 0; i < 20; ++i) {
    runner.zero_gradients();
    (void)runner.train(batches);
    testing::descend(model);
  }
  EXPECT_LT(runner.evaluate(batches).loss.item<double>(), before - 0.1);
}

TEST(PipelineRunner, AnEvaluationChangesNothing) {
  const PipelineCase of{.layers = 4, .dropout = 0.3};
  const Trained wanted = train_alone(of, {.steps = 2});
  PipelineLayer model = make_model(of);
  PipelineRunner runner(model, {});
  for (int step = 0; step < 2; ++step) {
    const auto batches = make_batches(step, 0, 4);
    const double loss = runner.evaluate(batches).loss.item<double>();
    EXPECT_EQ(loss, runner.evaluate(batches).loss.item<double>());
    runner.zero_gradients();
    (void)runner.train(batches);
    testing::descend(model);
  }
  EXPECT_THAT(different(testing::weights_of(model), wanted.weights), IsEmpty());
}

TEST(PipelineRunner, GoesOnFromTheGivenStep) {
  const PipelineCase of{.layers = 2, .dropout = 0.3};
  const auto gradient = [&](std::int64_t step) {
    PipelineLayer model = make_model(of);
    PipelineRunner runner(model, {});
    runner.set_step(step);
    (void)runner.train(make_batches(0, 0, 1));
    return model.parameters()[1].grad().clone();
  };
  EXPECT_TRUE(at::equal(gradient(7), gradient(7)));
  EXPECT_FALSE(at::equal(gradient(7), gradient(8)));
}

TEST(PipelineRunner, ScalesGradientsByTheLossScale) {
  PipelineLayer model = make_model({.layers = 2});
  PipelineRunner runner(model, {});
  const auto batches = make_batches(0, 0, 2);
  const double loss = runner.train(batches).loss.item<double>();
  const at::Tensor unscaled = model.parameters()[1].grad().clone();
  runner.zero_gradients();
  const at::Tensor scale = at::full({}, 1024.0, at::kFloat);
  EXPECT_EQ(runner.train(batches, nullptr, scale).loss.item<double>(), loss);
  EXPECT_TRUE(at::equal(model.parameters()[1].grad(), unscaled * 1024.0));
}

TEST(PipelineRunner, ThrowsThatGradientsAreWrongBeforeTheyAreUsed) {
  const testing::Deterministic deterministic;
  const PipelineCase of{.layers = 2};
  const Trained wanted = train_alone(of, {.steps = 3});
  SessionOptions options = testing::offload_everything();
  options.offload_window = Bytes(32 << 10);
  Session session(std::move(options));
  PipelineLayer model = make_model(of);
  session.register_model(model);
  PipelineRunner runner(model, {});
  for (int step = 0; step < 3; ++step) {
    const auto batches = make_batches(step, 0, 4);
    if (step == 0) {
      const testing::UnseenWrite write("aten::silu");
      EXPECT_THAT(error_text<VerificationError>([&] { (void)runner.train(batches, &session); }),
                  ::testing::HasSubstr("the gradients of this step are wrong"));
      EXPECT_TRUE(write.done());
    }
    runner.zero_gradients();
    (void)runner.train(batches, &session);
    testing::descend(model);
  }
  EXPECT_THAT(different(testing::weights_of(model), wanted.weights), IsEmpty());
}

TEST(PipelineRunner, SaysWhatItMisses) {
  PipelineLayer model = make_model({.layers = 2});
  PipelineRunner runner(model, {});
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)runner.train({}); }),
            "[pipeline] no micro-batches; give at least one");
  PipelineLayer half = make_model({.stages = 2, .stage = 1});
  EXPECT_THAT(error_text<InvalidArgument>([&] { PipelineRunner(half, {}); }),
              ::testing::HasSubstr("stage 1 of 2"));
}

}  // namespace
}  // namespace spillway
