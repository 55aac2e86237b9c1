#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/frameworks.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::kFlash;
using namespace spillway::literals;
using testing::action_at;
using testing::bytes_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_text;
using ::testing::HasSubstr;
using testing::layers_with;
using testing::Naming;
using testing::plan_by;
using testing::transformer_profile;

constexpr const char* kNorm = "aten::_fused_rms_norm";

Rules translated(const std::string& words, const ModelShape& shape = shape_of(16)) {
  return translate(parse_rules("[megatron]\n" + words, "m.toml"), shape);
}

std::string refused(const std::string& words) {
  return error_text<ConfigError>([&] { (void)translated(words); });
}

std::string modules(const std::string& list) {
  return "fine_grained_activation_offloading = true\noffload_modules = [" + list + "]\n";
}

Plan planned(const Profile& profile, const std::string& words) {
  return plan_by(profile, "[megatron]\n" + words);
}

TEST(Megatron, OffloadsWhatNamedModulesSaved) {
  for (const Naming naming : {Naming::kOwn, Naming::kLlama}) {
    const bool own = naming == Naming::kOwn;
    const Profile profile = transformer_profile({.naming = naming, .layers = 2});
    const std::string layer = own ? "layers.1." : "model.layers.1.";
    const std::string core = layer + (own ? "attention.core" : "self_attn");
    const std::string qkv = layer + (own ? "attention.qkv" : "self_attn.q_proj");
    const Plan plan = planned(profile, modules("\"core_attn\", \"attn_norm\""));
    for (const int ordinal : {0, 1, 2, 3})
      EXPECT_EQ(action_at(plan, core, kFlash, ordinal), "offload");
    EXPECT_EQ(action_at(plan, layer + (own ? "attention.norm" : "input_layernorm"), kNorm),
              "offload");
    EXPECT_EQ(action_at(plan, qkv, "aten::mm"), "keep");
  }
}

TEST(Megatron, TakesEveryWordOfItsModules) {
  struct Case {
    const char* word;
    Naming naming;
  };
  for (const Case& each : {Case{"attn_norm", Naming::kLlama},
                           {"qkv_linear", Naming::kGpt2},
                           {"core_attn", Naming::kGpt2},
                           {"attn_proj", Naming::kLlama},
                           {"mlp_norm", Naming::kOwn},
                           {"fc1", Naming::kLlama},
                           {"act", Naming::kLlama},
                           {"fc2", Naming::kGpt2},
                           {"router", Naming::kMixtral},
                           {"expert_fc1", Naming::kMixtral},
                           {"moe_act", Naming::kQwenExperts},
                           {"expert_fc2", Naming::kOwnExperts},
                           {"shared_experts", Naming::kQwenExperts}}) {
    const Profile profile = transformer_profile({.naming = each.naming, .layers = 2});
    const Plan plan = planned(profile, modules("\"" + std::string(each.word) + "\""));
    EXPECT_THAT(layers_with(plan, profile, ActionKind::kOffload), ElementsAre(0, 1)) << each.word;
  }
}

TEST(Megatron, OffloadsTheProjectionsInputAloneWhichMegatronForbids) {
  // There attention would not find its output any more; here one buffer moves once, for all.
  const Plan plan = planned(transformer_profile({.layers = 1}), modules("\"attn_proj\""));
  EXPECT_EQ(action_at(plan, "layers.0.attention.core", kFlash, 3), "offload");
  EXPECT_EQ(bytes_of(plan, ActionKind::kOffload), 64_MiB);
}

TEST(Megatron, CountsElementsAsMegatronDoesUnlessBytesAreGiven) {
  EXPECT_EQ(translated(modules("\"fc1\"")).rules[0].min_elements, 1'048'576U);
  const Rules elements = translated(modules("\"fc1\"") + "min_offloaded_tensor_size = 10");
  EXPECT_EQ(elements.rules[0].min_elements, 10U);
  EXPECT_EQ(elements.rules[0].min_size, std::nullopt);
  const Rules bytes = translated(modules("\"fc1\"") + "min_offloaded_bytes = \"2 MiB\"");
  EXPECT_EQ(bytes.rules[0].min_elements, std::nullopt);
  EXPECT_EQ(bytes.rules[0].min_size, 2_MiB);
  const Rules both =
      translated(modules("\"fc1\"") + "min_offloaded_bytes = 7\nmin_offloaded_tensor_size = 3");
  EXPECT_EQ(both.rules[0].min_elements, 3U);
  EXPECT_EQ(both.rules[0].min_size, 7_B);
}

TEST(Megatron, OffloadsAFractionTheFirstLayersFirst) {
  const Profile profile = transformer_profile({.layers = 4});
  const Plan plan =
      planned(profile, modules("\"attn_proj\"") + "activation_offload_fraction = 0.5");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kOffload), ElementsAre(0, 1));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("share of the bytes")));
}

TEST(Megatron, OffloadsLessOnLaterPipelineRanks) {
  Profile profile = transformer_profile({.layers = 4});
  const std::string words =
      modules("\"attn_proj\"") + "delta_offload_bytes_across_pp_ranks = 67108864";
  profile.pipeline_rank = 0;
  EXPECT_THAT(layers_with(planned(profile, words), profile, ActionKind::kOffload),
              ElementsAre(0, 1, 2, 3));
  profile.pipeline_rank = 1;
  EXPECT_THAT(layers_with(planned(profile, words), profile, ActionKind::kOffload),
              ElementsAre(1, 2, 3));
  profile.pipeline_rank = 3;
  EXPECT_THAT(layers_with(planned(profile, words), profile, ActionKind::kOffload), ElementsAre(3));
  // Of all chunks of the rank together.
  EXPECT_EQ(translated(words, {{{0, 3}, {8, 11}}, 1}).rules[0].skip, 32_MiB);
}

TEST(Megatron, TurnsInflightOffloadsIntoAnOffloadWindow) {
  const Profile profile = transformer_profile({.layers = 3});
  const std::string words = modules("\"attn_proj\", \"fc2\"");
  const auto offload_window = [&](const std::string& count) {
    return planned(profile, words + "fine_grained_offloading_max_inflight_offloads = " + count)
        .limits.offload_window;
  };
  EXPECT_EQ(offload_window("1"), 64_MiB + 224_MiB);
  EXPECT_EQ(offload_window("2"), (64_MiB + 224_MiB) * 2);
  EXPECT_EQ(offload_window("0"), 0_B);
  const Plan given = plan_by(profile, "[megatron]\n" + words +
                                          "fine_grained_offloading_max_inflight_offloads = 2\n"
                                          "[limits]\noffload_window = 5");
  EXPECT_EQ(given.limits.offload_window, 5_B);
  EXPECT_THAT(given.notes, Contains(HasSubstr("[limits] offload_window is given")));
}

TEST(Megatron, OffloadsWholeLayers) {
  const Profile profile = transformer_profile({.layers = 4});
  const Plan plan = planned(profile, "cpu_offloading = true\ncpu_offloading_num_layers = 2");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kOffload), ElementsAre(0, 1));
  EXPECT_EQ(action_at(plan, "layers.1.attention.norm", kNorm), "offload");
}

TEST(Megatron, RecomputesUniformGroupsOfLayers) {
  const Profile profile = transformer_profile({.layers = 4});
  const Plan plan = planned(profile,
                            "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n"
                            "recompute_num_layers = 2\ndistribute_saved_activations = true");
  EXPECT_EQ(action_at(plan, "layers.0.attention.norm", kNorm), "keep, sharded");
  EXPECT_EQ(action_at(plan, "layers.1.attention.norm", kNorm), "recompute");
  EXPECT_EQ(action_at(plan, "layers.2.attention.norm", kNorm), "keep, sharded");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kRecompute), ElementsAre(0, 1, 2, 3));
}

TEST(Megatron, RecomputesABlockOfLayers) {
  const Profile profile = transformer_profile({.layers = 4});
  const Plan plan = planned(profile,
                            "recompute_granularity = \"full\"\nrecompute_method = \"block\"\n"
                            "recompute_num_layers = 2");
  EXPECT_EQ(action_at(plan, "layers.0.attention.norm", kNorm), "keep");
  EXPECT_EQ(action_at(plan, "layers.1.attention.norm", kNorm), "keep");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kRecompute), ElementsAre(0, 1));
  // Of each chunk.
  EXPECT_EQ(to_string(*translated("recompute_granularity = \"full\"\nrecompute_method = \"block\"\n"
                                  "recompute_num_layers = 1",
                                  {{{0, 3}, {8, 11}}, 0})
                           .rules[0]
                           .layers),
            "0,8");
}

TEST(Megatron, RecomputesSelectedModules) {
  const Profile profile = transformer_profile({.layers = 1});
  const auto plan = [&](const std::string& list) {
    return planned(profile,
                   "recompute_granularity = \"selective\"\nrecompute_modules = [" + list + "]");
  };
  // A norm's output is recomputed where the next module saved it; its input is kept.
  const Plan norms = plan("\"layernorm\"");
  EXPECT_EQ(action_at(norms, "layers.0.attention.qkv", "aten::mm"), "recompute");
  EXPECT_EQ(action_at(norms, "layers.0.mlp.fc1", "aten::mm"), "recompute");
  EXPECT_EQ(action_at(norms, "layers.0.attention.norm", kNorm), "keep");
  // Attention keeps its inputs.
  const Plan attention = plan("\"core_attn\"");
  EXPECT_EQ(action_at(attention, "layers.0.attention.core", kFlash, 0), "keep");
  EXPECT_EQ(action_at(attention, "layers.0.attention.core", kFlash, 3), "recompute");
  const Plan mlp = plan("\"mlp\"");
  EXPECT_EQ(action_at(mlp, "layers.0.mlp.fc1", "aten::mm"), "keep");
  EXPECT_EQ(action_at(mlp, "layers.0.mlp.act", "aten::silu"), "recompute");
  EXPECT_EQ(action_at(mlp, "layers.0.mlp.fc2", "aten::mm"), "recompute");
  // The default is core_attn.
  EXPECT_EQ(planned(profile, "recompute_granularity = \"selective\"").chunks[0].decisions[5].action,
            attention.chunks[0].decisions[5].action);
}

TEST(Megatron, RecomputesPartsOfExperts) {
  const Profile profile = transformer_profile({.naming = Naming::kMixtral, .layers = 1});
  const std::string expert = "model.layers.0.block_sparse_moe.experts.1";
  const Plan act =
      planned(profile, "recompute_granularity = \"selective\"\nrecompute_modules = [\"moe_act\"]");
  EXPECT_EQ(action_at(act, expert + ".w2", "aten::mm"), "recompute");
  EXPECT_EQ(action_at(act, expert, "aten::mul"), "recompute");  // silu's output
  EXPECT_EQ(action_at(act, expert, "aten::mul", 1), "keep");    // made by w3
  const Plan moe =
      planned(profile, "recompute_granularity = \"selective\"\nrecompute_modules = [\"moe\"]");
  EXPECT_EQ(action_at(moe, expert, "aten::mul", 1), "recompute");
  EXPECT_EQ(action_at(moe, "model.layers.0.block_sparse_moe.gate", "aten::mm"), "keep");
}

TEST(Megatron, CombinesOffloadingAndRecomputation) {
  const Profile profile = transformer_profile({.layers = 2});
  // The norms' outputs are recomputed; their inputs are offloaded.
  const Plan selective = planned(
      profile, modules("\"attn_norm\", \"qkv_linear\"") +
                   "recompute_granularity = \"selective\"\nrecompute_modules = [\"layernorm\"]");
  EXPECT_EQ(action_at(selective, "layers.1.attention.norm", kNorm), "offload");
  EXPECT_EQ(action_at(selective, "layers.1.attention.qkv", "aten::mm"), "recompute");
  // Attention's outputs are offloaded, so that recomputing the layer does not run attention again.
  const Plan full =
      planned(profile, modules("\"core_attn\"") +
                           "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n"
                           "recompute_num_layers = 1");
  EXPECT_EQ(action_at(full, "layers.1.attention.core", kFlash, 3), "offload");
  EXPECT_EQ(action_at(full, "layers.1.mlp.act", "aten::mul"), "recompute");
  EXPECT_EQ(action_at(full, "layers.1.attention.norm", kNorm), "keep");
  // Whole layers offloaded with the rest recomputed.
  const Plan layers = planned(
      profile,
      "cpu_offloading = true\ncpu_offloading_num_layers = 1\nrecompute_granularity = \"full\"\n"
      "recompute_method = \"uniform\"\nrecompute_num_layers = 1");
  EXPECT_THAT(layers_with(layers, profile, ActionKind::kOffload), ElementsAre(0));
  EXPECT_THAT(layers_with(layers, profile, ActionKind::kRecompute), ElementsAre(1));
}

struct WrongWords {
  std::string words;
  const char* error;
};

TEST(Megatron, RefusesWhatHasNoMeaning) {
  for (const WrongWords& each : {
           WrongWords{
               "fine_grained_activation_offloading = true",
               "2:38: fine_grained_activation_offloading has no meaning without offload_modules: "
               "nothing says what to offload"},
           {"offload_modules = [\"core_atn\"]",
            "2:20: offload_modules: unknown word \"core_atn\"; did you mean \"core_attn\"?"},
           {"offload_modules = [\"layernorm\"]",
            "2:20: offload_modules: unknown word \"layernorm\"; there are: attn_norm, qkv_linear, "
            "core_attn, "
            "attn_proj, mlp_norm, fc1, act, fc2, router, expert_fc1, moe_act, expert_fc2, "
            "shared_experts"},
           {"recompute_granularity = \"full\"",
            "2:25: recompute_granularity = \"full\" needs recompute_method: \"uniform\" (groups of "
            "recompute_num_layers layers) or \"block\" (the first recompute_num_layers layers)"},
           {"recompute_granularity = \"full\"\nrecompute_method = \"block\"",
            "2:25: recompute_granularity = \"full\" needs recompute_num_layers of at least 1"},
           {"recompute_granularity = \"ful\"",
            "2:25: recompute_granularity: unknown word \"ful\"; did you mean \"full\"?"},
           {"recompute_granularity = \"selective\"\nrecompute_num_layers = 2",
            "3:24: recompute_num_layers has no meaning with recompute_granularity = \"selective\", "
            "which "
            "is for all layers"},
           {"distribute_saved_activations = true",
            "2:32: distribute_saved_activations has no meaning without recompute_granularity = "
            "\"full\": it slices the inputs of recomputed layers, and there are none"},
           {"cpu_offloading = true\ncpu_offloading_num_layers = 17",
            "1:1: cpu_offloading_num_layers = 17 is impossible: a chunk has 16 layers"},
           {"recompute_granularity = \"full\"\nrecompute_method = \"block\"\nrecompute_num_layers "
            "= 17",
            "1:1: recompute_num_layers = 17 is impossible: a chunk has 16 layers"},
           {"min_offloaded_tensor_size = \"1 MiB\"",
            "2:29: min_offloaded_tensor_size: a whole number wanted, found the text '1 MiB'"},
           {"activation_offload_fraction = -0.5",
            "2:31: activation_offload_fraction = -0.5 is impossible: it must be from 0 to 1"},
           {"ofload_modules = []",
            "2:1: unknown key \"ofload_modules\" in [megatron]; did you mean \"offload_modules\"?"},
       }) {
    EXPECT_EQ(refused(each.words), std::string("[rules] m.toml:") + each.error) << each.words;
  }
}

TEST(Megatron, NotesWhatIsValidThereButHasNoEffect) {
  EXPECT_THAT(translated("offload_modules = [\"fc1\"]\nmin_offloaded_tensor_size = 3").notes,
              ElementsAre("[megatron] offload_modules has no effect here: "
                          "fine_grained_activation_offloading is not true",
                          "[megatron] min_offloaded_tensor_size has no effect here: "
                          "fine_grained_activation_offloading is not true",
                          "[megatron] nothing is switched on: everything is kept"));
  EXPECT_THAT(
      translated("recompute_modules = [\"mlp\"]").notes,
      Contains("[megatron] recompute_modules has no effect here: recompute_granularity is not "
               "given"));
  EXPECT_THAT(
      translated("cpu_offloading_num_layers = 3").notes,
      Contains("[megatron] cpu_offloading_num_layers has no effect here: cpu_offloading is not "
               "true"));
  EXPECT_THAT(
      translated("recompute_granularity = \"full\"\nrecompute_method = \"block\"\n"
                 "recompute_num_layers = 1\nrecompute_modules = [\"mlp\"]")
          .notes,
      ElementsAre("[megatron] recompute_modules has no effect here: recompute_granularity = "
                  "\"full\" recomputes everything in its layers"));
}

}  // namespace
}  // namespace spillway
