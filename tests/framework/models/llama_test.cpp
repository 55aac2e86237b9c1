#include "spillway/models/llama.hpp"

#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;

LlamaShape tiny_llama() {
  return {.layers = 2,
          .hidden = 32,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 48,
          .tokens = 16,
          .vocabulary = 50,
          .dtype = at::kFloat};
}

at::Tensor llama_tokens(std::int64_t batch, std::int64_t length) {
  return at::arange(batch * length, at::kLong).view({batch, length}) % 50;
}

TEST(Llama, HasANameForEveryParameter) {
  const Llama model(tiny_llama());
  EXPECT_EQ(model.parameters().size(), 2U * 7U + 3U);
  const std::set<std::string> names(model.parameter_names().begin(), model.parameter_names().end());
  EXPECT_EQ(names.size(), model.parameters().size());
  EXPECT_TRUE(names.contains("layers.1.attention.qkv"));
}

TEST(Llama, IsTheSameForTheSameSeedAndAnotherForAnother) {
  LlamaShape shape = tiny_llama();
  const Llama one(shape);
  const Llama same(shape);
  shape.seed = 1;
  const Llama other(shape);
  EXPECT_TRUE(at::equal(one.parameters()[2], same.parameters()[2]));
  EXPECT_FALSE(at::equal(one.parameters()[2], other.parameters()[2]));
}

TEST(Llama, TakesBatchesOfShorterTextsAndSeesOnlyTheTokensBefore) {
  const Llama model(tiny_llama());
  const at::Tensor tokens = llama_tokens(3, 10);
  at::Tensor changed = tokens.clone();
  changed.select(1, 9).fill_(7);
  // The last target is left out by shortening both: what comes later changes nothing before.
  const auto first_nine = [&](const at::Tensor& each) {
    return model.loss(each.narrow(1, 0, 9), tokens.narrow(1, 0, 9));
  };
  EXPECT_TRUE(at::equal(first_nine(tokens), first_nine(changed)));
  EXPECT_FALSE(at::equal(model.loss(tokens, tokens), model.loss(changed, tokens)));
}

TEST(Llama, HasAGradientForEveryParameter) {
  const Llama model(tiny_llama());
  model.loss(llama_tokens(1, 16), llama_tokens(1, 16)).backward();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    ASSERT_TRUE(model.parameters()[i].grad().defined()) << model.parameter_names()[i];
    EXPECT_GT(model.parameters()[i].grad().abs().max().item<double>(), 0)
        << model.parameter_names()[i];
  }
}

TEST(Llama, DropsValuesByTheGeneratorOnlyIfAskedTo) {
  LlamaShape shape = tiny_llama();
  const Llama without_dropout(shape);
  EXPECT_TRUE(at::equal(without_dropout.loss(llama_tokens(1, 16), llama_tokens(1, 16)),
                        without_dropout.loss(llama_tokens(1, 16), llama_tokens(1, 16))));
  shape.dropout = 0.5;
  const Llama dropping(shape);
  EXPECT_FALSE(at::equal(dropping.loss(llama_tokens(1, 16), llama_tokens(1, 16)),
                         dropping.loss(llama_tokens(1, 16), llama_tokens(1, 16))));
}

TEST(Llama, SavesInTheScopesThatRulesName) {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = Bytes(1);
  Session session(std::move(options));
  const Llama model(tiny_llama());
  session.register_model(model);
  {
    const auto step = session.step();
    model.loss(llama_tokens(1, 16), llama_tokens(1, 16)).backward();
  }
  EXPECT_EQ(session.profile()->layers, 2);
  EXPECT_EQ(session.profile()->layer_scope, "layers");
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

TEST(Llama, RefusesShapesThatCannotBe) {
  const auto refused = [](auto change) {
    LlamaShape shape = tiny_llama();
    change(shape);
    return error_text<InvalidArgument>([&] { const Llama model(shape); });
  };
  EXPECT_EQ(refused([](LlamaShape& shape) { shape.layers = 0; }),
            "[model] layers = 0: at least 1 wanted");
  EXPECT_EQ(refused([](LlamaShape& shape) { shape.hidden = 30; }),
            "[model] hidden = 30 and heads = 4: each head must be of the same even width; give a "
            "multiple of 8 as hidden");
  EXPECT_EQ(refused([](LlamaShape& shape) { shape.kv_heads = 3; }),
            "[model] kv_heads = 3 must divide heads = 4");
  EXPECT_EQ(refused([](LlamaShape& shape) { shape.dropout = 1; }),
            "[model] dropout = 1.000000: from 0 to less than 1 wanted");
  const Llama model(tiny_llama());
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { (void)model.loss(llama_tokens(1, 17), llama_tokens(1, 17)); }),
            "[model] tokens and targets of sizes [batch, length] wanted, length at most 16; make "
            "both of one size");
}

}  // namespace
}  // namespace spillway
