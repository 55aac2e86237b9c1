#include "spillway/plan/module_words.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/synthetic_profile.hpp"

namespace spillway {
namespace {

using testing::kFlash;

struct Member {
  const char* word;
  const char* scope;
  const char* op = "aten::mm";
};

bool belongs(const Member& member) {
  const ModuleWord* word = find_module_word(member.word);
  EXPECT_NE(word, nullptr) << member.word;
  return word != nullptr && in_module(*word, member.scope, member.op);
}

TEST(ModuleWords, KnowTheirPartsInEveryNaming) {
  for (const Member& each : {
           // Spillway's own models.
           Member{"attn_norm", "layers.3.attention.norm"},
           {"qkv_linear", "layers.3.attention.qkv"},
           {"core_attn", "layers.3.attention.core", kFlash},
           {"attn_proj", "layers.3.attention.proj"},
           {"mlp_norm", "layers.3.mlp.norm"},
           {"fc1", "layers.3.mlp.fc1"},
           {"act", "layers.3.mlp.act", "aten::silu"},
           {"fc2", "layers.3.mlp.fc2"},
           {"mlp", "layers.3.mlp.fc1"},
           {"router", "layers.3.mlp.router"},
           {"expert_fc1", "layers.3.mlp.experts.fc1"},
           {"moe_act", "layers.3.mlp.experts.act", "aten::mul"},
           {"expert_fc2", "layers.3.mlp.experts.fc2"},
           {"shared_experts", "layers.3.mlp.shared_experts.fc1"},
           {"moe", "layers.3.mlp.experts.fc1"},
           {"moe", "layers.3.mlp.dispatch"},
           {"moe", "layers.3.mlp.combine"},
           // Llama, Qwen2, Qwen3, Mistral.
           {"attn_norm", "model.layers.3.input_layernorm", "aten::mul"},
           {"qkv_linear", "model.layers.3.self_attn.q_proj"},
           {"qkv_linear", "model.layers.3.self_attn.k_proj"},
           {"qkv_linear", "model.layers.3.self_attn.v_proj"},
           {"qkv_linear", "model.layers.3.self_attn.q_norm", "aten::pow"},
           {"qkv_linear", "model.layers.3.self_attn.k_norm", "aten::mul"},
           {"core_attn", "model.layers.3.self_attn", kFlash},
           {"core_attn", "model.layers.3.self_attn", "aten::native_dropout"},
           {"core_attn", "model.layers.3.self_attn", "aten::_softmax"},
           {"attn_proj", "model.layers.3.self_attn.o_proj"},
           {"mlp_norm", "model.layers.3.post_attention_layernorm", "aten::pow"},
           {"fc1", "model.layers.3.mlp.gate_proj"},
           {"fc1", "model.layers.3.mlp.up_proj"},
           {"act", "model.layers.3.mlp.act_fn", "aten::silu"},
           {"act", "model.layers.3.mlp", "aten::mul"},
           {"act", "model.layers.3.mlp.activation_fn", "aten::silu"},
           {"fc2", "model.layers.3.mlp.down_proj"},
           {"qkv_linear", "module.model.layers.3.self_attn.qkv_proj"},
           // GPT-2.
           {"attn_norm", "transformer.h.3.ln_1", "aten::native_layer_norm"},
           {"qkv_linear", "transformer.h.3.attn.c_attn", "aten::addmm"},
           {"core_attn", "transformer.h.3.attn", kFlash},
           {"core_attn", "transformer.h.3.attn", "aten::_safe_softmax"},
           {"core_attn", "transformer.h.3.attn", "aten::mul"},
           {"attn_proj", "transformer.h.3.attn.c_proj", "aten::addmm"},
           {"mlp_norm", "transformer.h.3.ln_2", "aten::native_layer_norm"},
           {"fc1", "transformer.h.3.mlp.c_fc", "aten::addmm"},
           {"act", "transformer.h.3.mlp.act", "aten::tanh"},
           {"fc2", "transformer.h.3.mlp.c_proj", "aten::addmm"},
           {"mlp", "transformer.h.3.mlp.dropout", "aten::native_dropout"},
           // Mixtral, Qwen-MoE.
           {"router", "model.layers.3.block_sparse_moe.gate"},
           {"router", "model.layers.3.mlp.gate"},
           {"expert_fc1", "model.layers.3.block_sparse_moe.experts.7.w1"},
           {"expert_fc1", "model.layers.3.block_sparse_moe.experts.7.w3"},
           {"expert_fc2", "model.layers.3.block_sparse_moe.experts.7.w2"},
           {"moe_act", "model.layers.3.block_sparse_moe.experts.7.act_fn", "aten::silu"},
           {"moe_act", "model.layers.3.block_sparse_moe.experts.7", "aten::mul"},
           {"expert_fc1", "model.layers.3.mlp.experts.127.gate_proj"},
           {"expert_fc2", "model.layers.3.mlp.experts.127.down_proj"},
           {"moe_act", "model.layers.3.mlp.experts.127", "aten::mul"},
           {"moe_act", "model.layers.3.mlp.experts", "aten::silu"},
           {"moe_act", "model.layers.3.mlp.experts.act_fn", "aten::silu"},
           {"expert_fc1", "model.layers.3.mlp.experts", "aten::_grouped_mm"},
           {"shared_experts", "model.layers.3.mlp.shared_expert.up_proj"},
           {"shared_experts", "model.layers.3.mlp.shared_expert_gate"},
           {"moe", "model.layers.3.block_sparse_moe", "aten::index_add"},
           {"moe", "model.layers.3.mlp", "aten::index"},
       }) {
    EXPECT_TRUE(belongs(each)) << each.word << " / " << each.scope << " / " << each.op;
  }
}

TEST(ModuleWords, KnowWhatIsNotTheirs) {
  for (const Member& each : {
           Member{"core_attn", "model.layers.3.self_attn.q_proj"},
           {"core_attn", "model.layers.3.self_attn", "aten::mul"},
           {"core_attn", "layers.3.attention.qkv"},
           {"core_attn", "transformer.h.3.attn.resid_dropout", "aten::mul"},
           {"act", "model.layers.3.mlp.gate_proj"},
           {"act", "model.layers.3.mlp.experts.act_fn", "aten::silu"},
           {"act", "model.layers.3.mlp.experts.7", "aten::mul"},
           {"fc1", "model.layers.3.mlp.experts.7.gate_proj"},
           {"fc1", "model.layers.3.mlp.shared_expert.gate_proj"},
           {"fc2", "transformer.h.3.attn.c_proj"},
           {"attn_proj", "transformer.h.3.mlp.c_proj"},
           {"mlp", "layers.3.mlp.norm"},
           {"mlp", "layers.3.mlp.experts.fc1"},
           {"moe", "layers.3.mlp.fc1"},
           {"moe", "layers.3.mlp.norm"},
           {"expert_fc1", "model.layers.3.mlp.shared_experts.gate_proj"},
           {"router", "model.layers.3.mlp.gate_proj"},
           {"mlp_norm", "layers.3.attention.norm"},
           {"attn_norm", "norm"},
       }) {
    EXPECT_FALSE(belongs(each)) << each.word << " / " << each.scope << " / " << each.op;
  }
}

TEST(ModuleWords, AreInTheOrderOfALayerWithAMeaningEach) {
  std::vector<std::string> words;
  for (const ModuleWord& each : module_words()) {
    words.push_back(each.word);
    EXPECT_FALSE(each.meaning.empty()) << each.word;
    EXPECT_FALSE(each.patterns.empty()) << each.word;
    for (const ModulePattern& pattern : each.patterns) EXPECT_FALSE(pattern.scope.empty());
  }
  EXPECT_THAT(words, ::testing::ElementsAre("attn_norm", "qkv_linear", "core_attn", "attn_proj",
                                            "mla_up_proj", "mlp_norm", "fc1", "act", "fc2", "mlp",
                                            "router", "expert_fc1", "moe_act", "expert_fc2",
                                            "shared_experts", "moe"));
  EXPECT_EQ(find_module_word("nonsense"), nullptr);
  EXPECT_THAT(attention_operators(), ::testing::Contains("*scaled_dot_product*"));
}

}  // namespace
}  // namespace spillway
