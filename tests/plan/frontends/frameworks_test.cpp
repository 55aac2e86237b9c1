#include "spillway/plan/frameworks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using testing::action_at;
using ::testing::ElementsAre;
using testing::error_text;
using ::testing::IsEmpty;
using testing::kFlash;
using testing::layers_with;
using testing::Naming;
using testing::plan_by;
using testing::transformer_profile;

std::string refused(const std::string& text, int layers = 16) {
  return error_text<ConfigError>(
      [&] { (void)translate(parse_rules(text, "m.toml"), shape_of(layers)); });
}

Rules translated(const std::string& text, int layers = 16) {
  return translate(parse_rules(text, "m.toml"), shape_of(layers));
}

struct LayerCase {
  const char* words;
  const char* offloaded;  // As text, empty for none.
  const char* recomputed;
};

std::string layers_by(const Rules& rules, ActionKind kind) {
  for (const Rule& rule : rules.rules) {
    if (rule.action.kind == kind && rule.producer.empty()) return to_string(*rule.layers);
  }
  return "";
}

TEST(InternEvo, OffloadsThenRecomputesThenKeepsLayers) {
  for (const LayerCase& each : {
           LayerCase{"cpu_offloading = { enable = true, num_layers = 10 }", "0..9", ""},
           {"cpu_offloading = { enable = true, num_layers = 3 }\ncheckpoint = 0.5", "0..2", "3..7"},
           {"checkpoint = 0.5", "", "0..7"},
           {"checkpoint = true", "", "0..15"},
           {"checkpoint = 1", "", "0..15"},
           {"checkpoint = false", "", ""},
           {"checkpoint = 0.99", "", "0..14"},
           {"cpu_offloading = { enable = false, num_layers = 3 }\ncheckpoint = true", "", "0..15"},
           {"cpu_offloading = { enable = true, num_layers = 16 }\ncheckpoint = true", "0..15", ""},
           {"cpu_offloading = { enable = true, num_layers = 8 }\ncheckpoint = 0.5", "0..7", ""},
           {"num_chunks = 2\ncheckpoint = 0.5", "", "0..3,8..11"},
           {"num_chunks = 3\ncpu_offloading = { enable = true, num_layers = 1 }\ncheckpoint = 0.5",
            "0,5,10", "1,6,11..12"},
       }) {
    const Rules rules = translated(std::string("[internevo]\n") + each.words);
    EXPECT_EQ(layers_by(rules, ActionKind::kOffload), each.offloaded) << each.words;
    EXPECT_EQ(layers_by(rules, ActionKind::kRecompute), each.recomputed) << each.words;
  }
}

TEST(InternEvo, ReadsItsWordsFlatOrWithinTheModelAsItsOwnFilesHaveThem) {
  const std::string flat =
      "[internevo]\ncpu_offloading = { enable = true, num_layers = 3 }\nselective_checkpoint = "
      "true\n"
      "checkpoint = 0.5\nnum_chunks = 2\n";
  const Rules wanted = translated(flat);
  for (const char* text :
       {"[internevo]\ncpu_offloading = { enable = true, num_layers = 3 }\n"
        "selective_checkpoint = true\nmodel = { checkpoint = 0.5, num_chunks = 2 }\n",
        "[internevo]\nselective_checkpoint = true\nnum_chunks = 2\n[internevo.model]\n"
        "checkpoint = 0.5\ncpu_offloading = { enable = true, num_layers = 3 }\n",
        "[internevo]\nmodel = { checkpoint = 0.5, num_chunks = 2, selective_checkpoint = true, "
        "cpu_offloading = { enable = true, num_layers = 3 } }\n"}) {
    EXPECT_EQ(to_toml(translated(text)), to_toml(wanted)) << text;
  }
}

TEST(InternEvo, SaysWhichSettingsOfAModelItDoesNotRead) {
  const Rules rules = translated(
      "[internevo]\nmodel = { checkpoint = true, hidden_size = 4096, num_layers = 32, dtype = "
      "\"torch.bfloat16\" }\nparallel = { zero1 = { size = 8 } }\n");
  EXPECT_EQ(layers_by(rules, ActionKind::kRecompute), "0..15");
  EXPECT_THAT(rules.notes,
              ElementsAre("[internevo] keys that do not concern activations are ignored: parallel, "
                          "model.dtype, model.hidden_size, model.num_layers"));
  EXPECT_EQ(refused("[internevo]\nmodel = { chekpoint = true }"),
            "[rules] m.toml:2:11: unknown key \"chekpoint\" in [internevo] model; did you mean "
            "\"checkpoint\"?");
  EXPECT_EQ(
      refused("[internevo]\ncheckpoint = 0.5\nmodel = { checkpoint = true }"),
      "[rules] m.toml:3:24: checkpoint is given in [internevo] and in its model; give it once");
  EXPECT_EQ(refused("[internevo]\nmodel = { checkpoint = 7 }"),
            "[rules] m.toml:2:24: checkpoint = 7 is impossible: it must be from 0 to 1");
}

TEST(InternEvo, KeepsTheInputsOfRecomputedLayers) {
  const Profile profile = transformer_profile({.layers = 4});
  const Plan plan =
      plan_by(profile,
              "[internevo]\ncpu_offloading = { enable = true, num_layers = 1 }\ncheckpoint = 0.75");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kOffload), ElementsAre(0));
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kRecompute), ElementsAre(1, 2));
  EXPECT_EQ(action_at(plan, "layers.0.attention.norm", "aten::_fused_rms_norm"), "offload");
  EXPECT_EQ(action_at(plan, "layers.1.attention.norm", "aten::_fused_rms_norm"), "keep");
  EXPECT_EQ(action_at(plan, "layers.1.mlp.norm", "aten::_fused_rms_norm"), "recompute");
  EXPECT_EQ(action_at(plan, "layers.1.attention.core", kFlash, 3), "recompute");
  EXPECT_EQ(action_at(plan, "layers.3.mlp.act", "aten::mul"), "keep");
}

TEST(InternEvo, KeepsOrOffloadsAttentionOutputsWhenSelective) {
  for (const Naming naming : {Naming::kOwn, Naming::kLlama}) {
    const Profile profile = transformer_profile({.naming = naming, .layers = 4});
    const std::string core =
        naming == Naming::kOwn ? "layers.1.attention.core" : "model.layers.1.self_attn";
    const Plan kept =
        plan_by(profile, "[internevo]\ncheckpoint = true\nselective_checkpoint = true");
    // Query, key and value are recomputed; output and log-sum-exp are kept.
    EXPECT_EQ(action_at(kept, core, kFlash, 0), "recompute");
    EXPECT_EQ(action_at(kept, core, kFlash, 3), "keep");
    EXPECT_EQ(action_at(kept, core, kFlash, 4), "keep");
    const Plan offloaded = plan_by(profile,
                                   "[internevo]\ncheckpoint = true\nselective_checkpoint = true\n"
                                   "selective_checkpoint_offload = true");
    EXPECT_EQ(action_at(offloaded, core, kFlash, 2), "recompute");
    EXPECT_EQ(action_at(offloaded, core, kFlash, 3), "offload");
    EXPECT_EQ(action_at(offloaded, core, kFlash, 4), "offload");
  }
}

TEST(InternEvo, CountsWithinTheChunksOfTheProfile) {
  const Profile profile = testing::chunked_profile({.layers = 4}, 2);
  const Plan plan = plan_by(profile,
                            "[internevo]\nnum_chunks = 2\ncheckpoint = 0.5\n"
                            "cpu_offloading = { enable = true, num_layers = 1 }");
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kOffload), ElementsAre(0, 4));
  EXPECT_THAT(layers_with(plan, profile, ActionKind::kRecompute), ElementsAre(1, 5));
}

TEST(InternEvo, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(refused("[internevo]\ncheckpoint = true\nselective_checkpoint_offload = true"),
            "[rules] m.toml:3:32: selective_checkpoint_offload has no meaning without "
            "selective_checkpoint = true: it says where the attention outputs go that "
            "selective_checkpoint saves from recomputation");
  EXPECT_EQ(
      refused("[internevo]\nselective_checkpoint = true"),
      "[rules] m.toml:2:24: selective_checkpoint has no meaning without checkpoint: it says what "
      "recomputed layers keep, and no layer is recomputed");
  EXPECT_EQ(refused("[internevo]\ncheckpoint = 1.5"),
            "[rules] m.toml:2:14: checkpoint = 1.5 is impossible: it must be from 0 to 1");
  EXPECT_EQ(
      refused("[internevo]\ncheckpoint = \"half\""),
      "[rules] m.toml:2:14: checkpoint: true, false or a number from 0 to 1 wanted, found the "
      "text 'half'");
  EXPECT_EQ(
      refused("[internevo]\ncpu_offloading = { enabled = true }"),
      "[rules] m.toml:2:20: unknown key \"enabled\" in [internevo] cpu_offloading; did you mean "
      "\"enable\"?");
  EXPECT_EQ(refused("[internevo]\ncpu_offloading = true"),
            "[rules] m.toml:2:18: cpu_offloading: a table wanted, found true");
  EXPECT_EQ(
      refused("\n[internevo]\ncpu_offloading = { enable = true, num_layers = 17 }"),
      "[rules] m.toml:2:1: cpu_offloading.num_layers = 17 is impossible: a chunk has 16 layers");
  EXPECT_EQ(refused("[internevo]\nnum_chunks = 17\ncheckpoint = 1"),
            "[rules] m.toml:1:1: num_chunks = 17 is impossible: the model has 16 layers");
  EXPECT_EQ(
      refused("[internevo]\ncheckpoint = 1", 0),
      "[rules] m.toml:1:1: [internevo] counts layers, but no repeated layers were found in the "
      "model; name the list of layers when recording");
}

TEST(InternEvo, NotesWhatHasNoEffect) {
  EXPECT_THAT(
      translated("[internevo]\ncpu_offloading = { enable = true }").notes,
      ElementsAre("[internevo] cpu_offloading is enabled for 0 layers: nothing is offloaded",
                  "[internevo] nothing is switched on: everything is kept"));
  EXPECT_THAT(
      translated("[internevo]\ncpu_offloading = { num_layers = 3 }\ncheckpoint = 1").notes,
      ElementsAre("[internevo] cpu_offloading has num_layers but is not enabled: it is off"));
  EXPECT_THAT(
      translated(
          "[internevo]\ncpu_offloading = { enable = true, num_layers = 8 }\ncheckpoint = 0.5")
          .notes,
      ElementsAre(
          "[internevo] checkpoint recomputes no layer: int(checkpoint * layers) is not more "
          "than the 8 offloaded layers of each chunk"));
}

TEST(Paddle, RecomputesBetweenTheInputsOfEveryInterval) {
  const Profile profile = transformer_profile({.layers = 6});
  const Plan plan = plan_by(profile, "[paddle]\nrecompute_interval = 2");
  EXPECT_EQ(action_at(plan, "layers.0.attention.norm", "aten::_fused_rms_norm"), "keep");
  EXPECT_EQ(action_at(plan, "layers.1.attention.norm", "aten::_fused_rms_norm"), "recompute");
  EXPECT_EQ(action_at(plan, "layers.2.attention.norm", "aten::_fused_rms_norm"), "keep");
  EXPECT_EQ(action_at(plan, "layers.5.mlp.act", "aten::mul"), "recompute");
  EXPECT_EQ(action_at(plan, "lm_head", "aten::mm"), "keep");
}

TEST(Paddle, OffloadsAndSlicesTheInputs) {
  struct Case {
    const char* words;
    const char* action;
  };
  const Profile profile = transformer_profile({.layers = 2});
  for (const Case& each :
       {Case{"recompute_offload = true", "offload"},
        {"recompute_partition = true", "keep, sharded"},
        {"recompute_offload = true\nrecompute_partition = true", "offload, sharded"}}) {
    const Plan plan =
        plan_by(profile, std::string("[paddle]\nrecompute_interval = 1\n") + each.words);
    EXPECT_EQ(action_at(plan, "layers.1.attention.norm", "aten::_fused_rms_norm"), each.action);
    EXPECT_EQ(action_at(plan, "layers.1.mlp.norm", "aten::_fused_rms_norm"), "recompute");
  }
}

TEST(Paddle, RefusesWhatHasNoMeaning) {
  for (const std::string key : {"recompute_offload", "recompute_partition"}) {
    EXPECT_THAT(
        refused("[paddle]\n" + key + " = true"),
        ::testing::EndsWith(key + " has no meaning without recompute_interval: it says where the "
                                  "inputs of recomputed layers go, and no layer is recomputed"));
  }
  EXPECT_EQ(refused("[paddle]\nrecompute_interval = -1"),
            "[rules] m.toml:2:22: recompute_interval = -1 is impossible: it must be at least 0");
  EXPECT_EQ(refused("[paddle]\nrecompute_inteval = 1"),
            "[rules] m.toml:2:1: unknown key \"recompute_inteval\" in [paddle]; did you mean "
            "\"recompute_interval\"?");
  EXPECT_THAT(translated("[paddle]").notes,
              ElementsAre("[paddle] recompute_interval is 0: nothing is recomputed"));
}

TEST(FrameworkSettings, ComeAfterTheRulesOfTheFile) {
  const Rules rules = translated(
      "[[rule]]\nlayers = 0\naction = \"keep\"\n[paddle]\nrecompute_interval = 1\n[limits]\nhost = "
      "1");
  ASSERT_EQ(rules.rules.size(), 3U);
  EXPECT_EQ(rules.rules[0].action.kind, ActionKind::kKeep);
  EXPECT_EQ(rules.rules[2].name, "paddle: recompute_interval");
  EXPECT_EQ(rules.limits.host, Bytes(1));
  EXPECT_FALSE(rules.settings);
}

TEST(ModelShape, IsThatOfTheChunksWithLayers) {
  EXPECT_THAT(shape_of(testing::chunked_profile({.layers = 4}, 2)).chunks,
              ElementsAre(LayerRange{0, 3}, LayerRange{4, 7}));
  EXPECT_THAT(shape_of(testing::baseline_profile({1})).chunks, IsEmpty());
  EXPECT_THAT(shape_of(3).chunks, ElementsAre(LayerRange{0, 2}));
}

}  // namespace
}  // namespace spillway
