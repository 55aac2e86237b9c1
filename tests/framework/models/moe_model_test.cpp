#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::error_text;

LlamaShape mixed() {
  return {.layers = 4,
          .hidden = 32,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 48,
          .tokens = 64,
          .vocabulary = 50,
          .moe = {.experts = 3, .ffn = 40},
          .dtype = at::kFloat};
}

at::Tensor text() { return at::arange(64, at::kLong).view({1, 64}) * 7 % 50; }

TEST(MixedLlama, HasExpertsInEverySecondLayer) {
  const Llama model(mixed());
  const std::set<std::string> names(model.parameter_names().begin(), model.parameter_names().end());
  EXPECT_EQ(names.size(), model.parameters().size());
  EXPECT_TRUE(names.contains("layers.0.mlp.fc1.gate"));
  EXPECT_TRUE(names.contains("layers.1.mlp.router"));
  EXPECT_TRUE(names.contains("layers.3.mlp.experts.fc2"));
  EXPECT_FALSE(names.contains("layers.1.mlp.fc1.gate"));
  EXPECT_FALSE(names.contains("layers.2.mlp.router"));
}

std::vector<at::Tensor> gradients(const Llama& model, Session* session, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (const at::Tensor& each : model.parameters()) each.mutable_grad() = at::Tensor();
    std::optional<Step> step;
    if (session != nullptr) step.emplace(session->step());
    model.loss(text(), text()).backward();
  }
  std::vector<at::Tensor> found;
  for (const at::Tensor& each : model.parameters()) {
    found.push_back(each.grad().defined() ? each.grad().clone() : at::Tensor());
  }
  return found;
}

TEST(MixedLlama, HasTheSameBitsWithASession) {
  const Llama model(mixed());
  const auto wanted = gradients(model, nullptr, 1);
  for (const char* action : {"keep", "offload", "recompute"}) {
    SessionOptions options;
    options.device = at::kCPU;
    options.small = Bytes(1);
    options.rules = parse_rules(
        std::string("[[rule]]\nlayers = \"0..-1\"\naction = \"") + action + "\"\n", "r.toml");
    Session session(std::move(options));
    session.register_model(model);
    const auto found = gradients(model, &session, 3);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(wanted[i].defined(), found[i].defined()) << model.parameter_names()[i];
      if (wanted[i].defined()) {
        EXPECT_TRUE(at::equal(wanted[i], found[i])) << action << " " << model.parameter_names()[i];
      }
    }
    std::set<std::string> scopes;
    for (const BufferProfile& buffer : session.profile()->chunks[0].buffers) {
      scopes.insert(buffer.position.scope);
    }
    EXPECT_THAT(scopes, ::testing::IsSupersetOf({"layers.1.mlp.router", "layers.1.mlp.experts.fc1",
                                                 "layers.1.mlp.experts.act",
                                                 "layers.1.mlp.experts.fc2", "layers.2.mlp.fc1"}));
  }
}

TEST(MixedLlama, RefusesToChooseMoreExpertsThanThereAre) {
  LlamaShape shape = mixed();
  shape.moe.chosen = 4;
  EXPECT_EQ(error_text<InvalidArgument>([&] { const Llama model(shape); }),
            "[model] chosen_experts = 4 of experts = 3: at least 1 and not more than there are "
            "wanted");
}

}  // namespace
}  // namespace spillway
