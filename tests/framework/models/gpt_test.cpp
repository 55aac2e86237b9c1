#include "spillway/models/gpt.hpp"

#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/models/token_embedding.hpp"
#include "spillway/pipeline/pipeline_layer.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;

GptShape tiny() {
  return {.layers = 2,
          .hidden = 32,
          .heads = 4,
          .ffn = 48,
          .tokens = 16,
          .vocabulary = 50,
          .dropout = 0,
          .tied = false};
}

PipelineLayer whole(const std::vector<LayerDesc>& layers) {
  PipelineLayerOptions options;
  options.loss_fn = language_model_loss;
  return {layers, options};
}

at::Tensor text(std::int64_t batch, std::int64_t length) {
  return at::arange(batch * length, at::kLong).view({batch, length}) % 50;
}

std::int64_t count_parameters(const std::vector<LayerDesc>& layers) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : whole(layers).parameters()) count += parameter.numel();
  return count;
}

TEST(Gpt, HasTheParametersOfTheModelItIsNamedAfter) {
  GptShape shape;
  shape.device = at::kMeta;
  shape.vocabulary = 50257;
  // 117 million by the paper's count, which leaves out some of the embedding's rounding.
  EXPECT_EQ(count_parameters(gpt_layers(shape)), 124'439'808);
}

TEST(Gpt, SharesTheEmbeddingWithTheHeadIfTied) {
  GptShape shape = tiny();
  const std::int64_t untied = count_parameters(gpt_layers(shape));
  shape.tied = true;
  EXPECT_EQ(count_parameters(gpt_layers(shape)), untied - 50 * 32);
  LlamaShape llama{.layers = 2,
                   .hidden = 32,
                   .heads = 4,
                   .kv_heads = 2,
                   .ffn = 48,
                   .tokens = 16,
                   .vocabulary = 50};
  const std::int64_t untied_llama = count_parameters(llama_layers(llama));
  llama.tied = true;
  EXPECT_EQ(count_parameters(llama_layers(llama)), untied_llama - 50 * 32);
}

TEST(Gpt, SeesOnlyTheTokensBeforeAndTheirPositions) {
  const PipelineLayer model = whole(gpt_layers(tiny()));
  const at::Tensor tokens = text(2, 10);
  at::Tensor changed = tokens.clone();
  changed.select(1, 9).fill_(7);
  const at::Tensor one = model.forward(0, {tokens}, 0)[0];
  const at::Tensor other = model.forward(0, {changed}, 0)[0];
  EXPECT_EQ(one.sizes(), at::IntArrayRef({2, 10, 50}));
  EXPECT_TRUE(at::equal(one.narrow(1, 0, 9), other.narrow(1, 0, 9)));
  EXPECT_FALSE(at::equal(one, other));
  // The same token at another position is something else.
  const at::Tensor same = model.forward(0, {at::full({1, 4}, 3, at::kLong)}, 0)[0];
  EXPECT_FALSE(at::equal(same[0][0], same[0][1]));
}

TEST(Gpt, HasAGradientForEveryParameter) {
  for (const bool tied : {false, true}) {
    GptShape shape = tiny();
    shape.tied = tied;
    const PipelineLayer model = whole(gpt_layers(shape));
    model.loss(model.forward(0, {text(1, 16)}, 0)[0], text(1, 16)).backward();
    for (const StageParameter& parameter : model.stage_parameters()) {
      ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
      EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << parameter.name;
    }
  }
}

TEST(Gpt, DropsValuesInTrainingOnly) {
  GptShape shape = tiny();
  shape.dropout = 0.3;
  PipelineLayer model = whole(gpt_layers(shape));
  const auto run = [&](std::uint64_t seed) { return model.forward(0, {text(1, 16)}, seed)[0]; };
  EXPECT_TRUE(at::equal(run(1), run(1)));
  EXPECT_FALSE(at::equal(run(1), run(2)));
  model.train(false);
  EXPECT_TRUE(at::equal(run(1), run(2)));
}

TEST(Gpt, SavesInTheScopesThatRulesName) {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = Bytes(1);
  Session session(std::move(options));
  const PipelineLayer model = whole(gpt_layers(tiny()));
  session.register_model(model);
  {
    const auto step = session.step();
    model.loss(model.forward(0, {text(1, 16)}, 0)[0], text(1, 16)).backward();
  }
  EXPECT_EQ(session.profile()->layers, 2);
  std::set<std::string> scopes;
  for (const BufferProfile& buffer : session.profile()->chunks[0].buffers) {
    scopes.insert(buffer.position.scope);
  }
  for (const char* scope :
       {"layers.0.attention.norm", "layers.0.attention.qkv", "layers.0.attention.core",
        "layers.0.attention.proj", "layers.1.mlp.norm", "layers.1.mlp.fc1", "layers.1.mlp.act",
        "layers.1.mlp.fc2", "head"}) {
    EXPECT_THAT(scopes, ::testing::Contains(scope));
  }
}

TEST(Gpt, RefusesShapesThatCannotBe) {
  const auto refused = [](auto change) {
    GptShape shape = tiny();
    change(shape);
    return error_text<InvalidArgument>([&] { (void)gpt_layers(shape); });
  };
  EXPECT_EQ(refused([](GptShape& shape) { shape.layers = 0; }),
            "[model] layers = 0: at least 1 wanted");
  EXPECT_EQ(refused([](GptShape& shape) { shape.heads = 5; }),
            "[model] heads = 5 must divide hidden = 32");
  EXPECT_EQ(refused([](GptShape& shape) { shape.dropout = 1; }),
            "[model] dropout = 1.000000: from 0 to less than 1 wanted");
}

}  // namespace
}  // namespace spillway
