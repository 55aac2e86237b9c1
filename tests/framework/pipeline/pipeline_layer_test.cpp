#include "spillway/pipeline/pipeline_layer.hpp"

#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline_models.hpp"
#include "spillway/core/error.hpp"
#include "spillway/models/llama.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::different;
using ::testing::ElementsAre;
using testing::error_text;
using ::testing::IsEmpty;
using testing::make_model;
using testing::PipelineCase;
using testing::Weights;
using testing::weights_of;

TEST(PipelineLayer, BuildsOnlyTheLayersOfItsStage) {
  const PipelineLayer whole = make_model({});
  EXPECT_EQ(whole.layers(), 10);
  Weights parts;
  for (int stage = 0; stage < 3; ++stage) {
    const PipelineLayer part = make_model({.stages = 3, .stage = stage});
    for (const auto& [name, value] : weights_of(part)) {
      EXPECT_TRUE(parts.emplace(name, value).second) << name;
    }
  }
  EXPECT_EQ(parts.size(), whole.stage_parameters().size());
  EXPECT_THAT(different(parts, weights_of(whole)), IsEmpty());
}

TEST(PipelineLayer, SplitsByItsMethod) {
  const auto bounds = [](const std::string& method, int stages, int chunks) {
    return make_model({.stages = stages, .chunks = chunks, .seg_method = method}).bounds();
  };
  EXPECT_THAT(bounds("uniform", 4, 1), ElementsAre(0, 2, 4, 7, 10));
  EXPECT_THAT(bounds("layer:LlamaLayer", 4, 1), ElementsAre(0, 3, 5, 7, 10));
  EXPECT_THAT(bounds("layer:LlamaLayer", 2, 2), ElementsAre(0, 3, 5, 7, 10));
  EXPECT_THAT(bounds("0,1,9,10", 3, 1), ElementsAre(0, 1, 9, 10));
}

TEST(PipelineLayer, GivesEveryChunkItsPart) {
  const PipelineLayer model =
      make_model({.stages = 2, .stage = 1, .chunks = 2, .seg_method = "layer:LlamaLayer"});
  EXPECT_EQ(model.describe(0), "layers.2 .. layers.3");
  EXPECT_EQ(model.describe(1), "layers.6 .. head");
  EXPECT_FALSE(model.is_first(0));
  EXPECT_FALSE(model.is_last(0));
  EXPECT_TRUE(model.is_last(1));
}

TEST(PipelineLayer, SharesWeightsWithinAStageAndCopiesThemBetweenStages) {
  const PipelineLayer whole = make_model({.model = "gpt", .tied = true});
  EXPECT_THAT(whole.all_shared_weights(), IsEmpty());
  int copies = 0;
  for (const StageParameter& parameter : whole.stage_parameters()) copies += parameter.copy ? 1 : 0;
  EXPECT_EQ(copies, 0);

  const PipelineLayer first = make_model({.model = "gpt", .tied = true, .stages = 3});
  const PipelineLayer middle = make_model({.model = "gpt", .tied = true, .stages = 3, .stage = 1});
  const PipelineLayer last = make_model({.model = "gpt", .tied = true, .stages = 3, .stage = 2});
  ASSERT_EQ(first.shared_weights().size(), 1U);
  EXPECT_THAT(first.shared_weights()[0].stages, ElementsAre(0, 2));
  EXPECT_THAT(middle.shared_weights(), IsEmpty());
  EXPECT_EQ(middle.all_shared_weights().size(), 1U);
  ASSERT_EQ(last.shared_weights().size(), 1U);
  EXPECT_TRUE(
      at::equal(first.shared_weights()[0].parameters[0], last.shared_weights()[0].parameters[0]));
  const StageParameter& copy = last.stage_parameters().back();
  EXPECT_TRUE(copy.copy);
  EXPECT_EQ(copy.name, "embedding.weight");
}

TEST(PipelineLayer, RandomNumbersFollowTheLayersIndex) {
  const PipelineLayer whole = make_model({.dropout = 0.5});
  const PipelineLayer first = make_model({.dropout = 0.5, .stages = 2});
  const PipelineLayer second = make_model({.dropout = 0.5, .stages = 2, .stage = 1});
  const Tensors tokens{at::arange(24, at::kLong).view({1, 24})};
  const at::Tensor wanted = whole.forward(0, tokens, 3)[0];
  const Tensors middle = first.forward(0, tokens, 3);
  at::manual_seed(99);  // Whatever ran in between.
  EXPECT_TRUE(at::equal(second.forward(0, middle, 3)[0], wanted));
  EXPECT_FALSE(at::equal(second.forward(0, middle, 4)[0], wanted));
}

TEST(PipelineLayer, BalancesByAProfile) {
  const PipelineLayer whole = make_model({});
  auto profile = std::make_shared<Profile>();
  ChunkProfile chunk;
  int id = 0;
  for (const auto& [scope, bytes] :
       {std::pair<const char*, std::uint64_t>{"layers.0.mlp", 10}, {"layers.7.mlp", 10}}) {
    BufferProfile buffer;
    buffer.id = id++;
    buffer.size = Bytes(bytes);
    buffer.position.scope = scope;
    chunk.buffers.push_back(buffer);
  }
  profile->chunks.push_back(chunk);
  PipelineLayerOptions options = whole.options();
  options.num_stages = 2;
  options.seg_method = "memory";
  LlamaShape shape{.layers = 8, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 64, .tokens = 24};
  EXPECT_THAT(error_text<InvalidArgument>([&] { PipelineLayer(llama_layers(shape), options); }),
              ::testing::HasSubstr("memory"));
  options.profile = profile;
  const PipelineLayer balanced(llama_layers(shape), options);
  // One heavy layer each; the earliest such split.
  EXPECT_THAT(balanced.bounds(), ElementsAre(0, 2, 10));
}

TEST(PipelineLayer, AsksForRecomputationByPaddlesWords) {
  const PipelineLayer model = make_model({.recompute_interval = 2});
  const Rules rules = model.rules();
  ASSERT_TRUE(rules.settings.has_value());
  EXPECT_EQ(std::get<PaddleSettings>(*rules.settings).recompute_interval, 2);
  EXPECT_FALSE(make_model({}).rules().settings.has_value());
}

TEST(PipelineLayer, RefusesWhatCannotBe) {
  const auto refused = [](PipelineCase of) {
    return error_text<InvalidArgument>([&] { (void)make_model(of); });
  };
  EXPECT_EQ(refused({.stages = 0}), "[pipeline] num_stages = 0: at least 1 wanted");
  EXPECT_EQ(refused({.stages = 2, .stage = 2}),
            "[pipeline] stage = 2: one of the 2 stages from 0 on wanted");
  EXPECT_EQ(refused({.chunks = 0}), "[pipeline] chunks = 0: at least 1 wanted");
  EXPECT_NE(refused({.layers = 1, .stages = 4}), "");
  EXPECT_NE(refused({.stages = 3, .seg_method = "layer:LlamaLayer"}), "");
  EXPECT_NE(refused({.seg_method = "layer:Nothing"}), "");

  LlamaShape shape{.layers = 2, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 64, .tokens = 24};
  auto layers = llama_layers(shape);
  PipelineLayerOptions options = make_model({}).options();
  layers[1].name = layers[2].name;
  EXPECT_EQ(error_text<InvalidArgument>([&] { PipelineLayer(layers, options); }),
            "[pipeline] two layers have the name \"layers.1\"; every layer needs one of its own");
  layers = llama_layers(shape);
  layers[0].shared = layers[1].shared = "same";
  EXPECT_EQ(error_text<InvalidArgument>([&] { PipelineLayer(layers, options); }),
            "[pipeline] layers \"embedding\" and \"layers.0\" share weights by the key \"same\", "
            "but are a TokenEmbedding and a LlamaLayer");
  options.recompute_offload = true;
  EXPECT_NE(error_text<InvalidArgument>([&] { PipelineLayer(llama_layers(shape), options); }), "");
}

}  // namespace
}  // namespace spillway
