// What the frameworks' words for recomputation mean on whole models: those whose norms save the
// residual stream, and those where nothing saves it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/replay_check.hpp"
#include "plan/support/synthetic_profile.hpp"

namespace spillway {
namespace {

using testing::check_replays;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ModelSize;
using testing::Naming;
using testing::plan_by;
using testing::transformer_profile;

const std::vector<ModelSize>& models() {
  static const std::vector<ModelSize> kModels = {
      {.layers = 4},
      {.naming = Naming::kLlama, .layers = 4},
      {.naming = Naming::kLlama, .layers = 4, .casting_norms = true},
      {.naming = Naming::kGpt2, .layers = 4, .dropout = true},
      {.naming = Naming::kMixtral, .layers = 4, .casting_norms = true},
      {.naming = Naming::kOwnExperts, .layers = 4},
  };
  return kModels;
}

/// A model with its plan, checked to be executable.
struct Planned {
  Planned(const ModelSize& size, const std::string& rules)
      : profile(transformer_profile(size)), plan(plan_by(profile, rules)) {
    check_replays(plan, profile);
  }

  [[nodiscard]] const ChunkProfile& recorded() const { return profile.chunks.front(); }
  [[nodiscard]] const ChunkPlan& chunk() const { return plan.chunks.front(); }
  [[nodiscard]] bool is_held(int value) const {
    const ValueProfile& read = recorded().values[static_cast<std::size_t>(value)];
    if (read.persistent) return true;
    if (read.buffer >= 0) {
      const Decision& decision = chunk().decisions[static_cast<std::size_t>(read.buffer)];
      return decision.action.kind != ActionKind::kRecompute;
    }
    for (const Anchor& anchor : chunk().anchors) {
      const auto& makes = recorded().operators[static_cast<std::size_t>(anchor.call)].makes;
      if (makes[static_cast<std::size_t>(anchor.output)] == value) return true;
    }
    return false;
  }

  /// The calls that the recomputation of one buffer repeats.
  [[nodiscard]] std::set<int> replay_of(const BufferProfile& buffer) const {
    std::set<int> calls;
    std::vector<int> open = {recorded().values[static_cast<std::size_t>(buffer.value)].call};
    while (!open.empty()) {
      const int call = open.back();
      open.pop_back();
      if (!calls.insert(call).second) continue;
      for (const int value : recorded().operators[static_cast<std::size_t>(call)].reads) {
        if (is_held(value)) continue;
        open.push_back(recorded().values[static_cast<std::size_t>(value)].call);
      }
    }
    return calls;
  }

  /// Actions of the anchors, by the layer whose recomputation they serve.
  [[nodiscard]] std::vector<std::string> anchor_actions() const {
    std::vector<std::string> actions;
    for (const Anchor& anchor : chunk().anchors) actions.push_back(to_string(anchor.action));
    return actions;
  }

  Profile profile;
  Plan plan;
};

bool is_open(const BufferProfile& buffer) { return buffer.fixed == FixedReason::kNone; }

/// Whether replays stay within groups of so many layers, counted from `first`.
void expect_no_replay_leaves_its_group(const Planned& model, int group, int first = 0) {
  const auto group_of = [&](int layer) { return layer < first ? -1 : (layer - first) / group; };
  for (const BufferProfile& buffer : model.recorded().buffers) {
    const Decision& decision = model.chunk().decisions[static_cast<std::size_t>(buffer.id)];
    if (decision.action.kind != ActionKind::kRecompute) continue;
    for (const int call : model.replay_of(buffer)) {
      const OperatorProfile& repeated = model.recorded().operators[static_cast<std::size_t>(call)];
      EXPECT_EQ(group_of(repeated.layer), group_of(buffer.producer.layer))
          << buffer.position.scope << " repeats " << repeated.name << " in " << repeated.scope;
    }
  }
}

/// Groups of `group` layers from `first` to `last` are recomputed from what enters them.
void expect_recomputed(const Planned& model, int first, int last, int group,
                       const std::string& input_action) {
  for (const BufferProfile& buffer : model.recorded().buffers) {
    if (!is_open(buffer) || buffer.layer < first || buffer.layer > last) continue;
    const Decision& decision = model.chunk().decisions[static_cast<std::size_t>(buffer.id)];
    const int start = first + (buffer.layer - first) / group * group;
    EXPECT_EQ(to_string(decision.action),
              buffer.producer.layer < start ? input_action : "recompute")
        << buffer.position.scope << " " << buffer.position.saver;
  }
  expect_no_replay_leaves_its_group(model, group, first);
}

TEST(RecomputedLayers, AreRecomputedWholeFromWhatEntersThem) {
  for (const ModelSize& size : models()) {
    for (const char* rules :
         {"[internevo]\ncheckpoint = true", "[paddle]\nrecompute_interval = 1",
          "[megatron]\nrecompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n"
          "recompute_num_layers = 1",
          "[megatron]\nrecompute_granularity = \"full\"\nrecompute_method = \"block\"\n"
          "recompute_num_layers = 4"}) {
      const Planned model(size, rules);
      expect_recomputed(model, 0, 3, 1, "keep");
      // The residual stream: once a layer, where it is not saved.
      EXPECT_EQ(model.chunk().anchors.size(), size.casting_norms ? 4U : 0U) << rules;
    }
  }
}

TEST(RecomputedLayers, InGroupsHoldTheResidualStreamOnceAGroup) {
  for (const ModelSize& size : models()) {
    for (const char* rules :
         {"[paddle]\nrecompute_interval = 2",
          "[megatron]\nrecompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n"
          "recompute_num_layers = 2"}) {
      const Planned model(size, rules);
      expect_recomputed(model, 0, 3, 2, "keep");
      EXPECT_EQ(model.chunk().anchors.size(), size.casting_norms ? 2U : 0U) << rules;
    }
  }
}

TEST(RecomputedLayers, HaveTheirInputsOffloadedAndSlicedAsPaddleSays) {
  for (const ModelSize& size : models()) {
    const Planned away(size, "[paddle]\nrecompute_interval = 2\nrecompute_offload = true");
    expect_recomputed(away, 0, 3, 2, "offload");
    EXPECT_THAT(away.anchor_actions(), ::testing::Each("offload"));
    const Planned sliced(size, "[paddle]\nrecompute_interval = 2\nrecompute_partition = true");
    expect_recomputed(sliced, 0, 3, 2, "keep, sharded");
    EXPECT_THAT(sliced.anchor_actions(), ::testing::Each("keep, sharded"));
  }
}

TEST(RecomputedLayers, OfABlockDoNotChangeTheOthers) {
  for (const ModelSize& size : models()) {
    const Planned model(size,
                        "[megatron]\nrecompute_granularity = \"full\"\nrecompute_method = "
                        "\"block\"\nrecompute_num_layers = 2");
    expect_recomputed(model, 0, 1, 1, "keep");
    EXPECT_THAT(testing::layers_with(model.plan, model.profile, ActionKind::kRecompute),
                ElementsAre(0, 1));
    EXPECT_EQ(model.chunk().anchors.size(), size.casting_norms ? 2U : 0U);
  }
}

TEST(RecomputedLayers, MixWithOffloadedOnesAsInInternEvo) {
  for (const ModelSize& size : models()) {
    const Planned model(size,
                        "[internevo]\ncpu_offloading = { enable = true, num_layers = 1 }\n"
                        "checkpoint = 0.75");
    EXPECT_THAT(testing::layers_with(model.plan, model.profile, ActionKind::kOffload),
                ElementsAre(0));
    expect_recomputed(model, 1, 2, 1, "keep");
    for (const RecordedOperator& each : model.chunk().operators) {
      const int layer = model.recorded().operators[static_cast<std::size_t>(each.call)].layer;
      // Of layer 0 only what makes the input of layer 1.
      EXPECT_TRUE(layer == 1 || layer == 2 || (layer == 0 && each.name == "aten::add")) << layer;
    }
    EXPECT_EQ(model.chunk().anchors.size(), size.casting_norms ? 2U : 0U);
  }
}

TEST(SelectiveCheckpoint, NeverRunsAttentionAgain) {
  for (const ModelSize& size : models()) {
    for (const bool offload : {false, true}) {
      const std::string words = "[internevo]\ncheckpoint = true\nselective_checkpoint = true\n";
      const Planned model(size, words + (offload ? "selective_checkpoint_offload = true" : ""));
      int outputs = 0;
      for (const BufferProfile& buffer : model.recorded().buffers) {
        if (!is_open(buffer) || buffer.layer < 0) continue;
        const Decision& decision = model.chunk().decisions[static_cast<std::size_t>(buffer.id)];
        const bool attention = buffer.producer.name.find("flash") != std::string::npos;
        outputs += attention ? 1 : 0;
        const bool input = buffer.producer.layer < buffer.layer;
        EXPECT_EQ(to_string(decision.action), attention ? (offload ? "offload" : "keep")
                                              : input   ? "keep"
                                                        : "recompute");
      }
      EXPECT_EQ(outputs, 8);  // And the log-sum-exp.
      for (const RecordedOperator& each : model.chunk().operators) {
        EXPECT_EQ(each.name.find("flash"), std::string::npos);
      }
      expect_no_replay_leaves_its_group(model, 1);
    }
  }
}

struct ModuleCase {
  const char* module;
  Naming naming;
  bool casting_norms;
  std::vector<std::string> repeated;  // In one layer.
  std::vector<std::string> anchors;   // In all of two layers, as "made by: why".
};

TEST(SelectiveRecompute, RepeatsTheModulesOfMegatronsWords) {
  const char* const flash = "aten::_scaled_dot_product_flash_attention";
  const std::string fused = "aten::_fused_rms_norm";
  const std::vector<std::string> norm = {"aten::_to_copy", "aten::mul", "aten::_to_copy",
                                         "aten::mul"};
  std::vector<std::string> norms = norm;
  norms.insert(norms.end(), norm.begin(), norm.end());
  const std::string enters = ": enters a recomputed layer: keep";
  const std::string tie = "aten::add: not larger than what it is made of: keep";
  for (const ModuleCase& each : {
           ModuleCase{"core_attn", Naming::kOwn, false, {flash}, {}},
           {"core_attn", Naming::kLlama, true, {flash}, {}},
           {"layernorm", Naming::kOwn, false, {fused, fused}, {}},
           {"layernorm",
            Naming::kLlama,
            true,
            norms,
            {"aten::embedding" + enters, tie, "aten::add" + enters, tie}},
           {"mlp", Naming::kOwn, false, {"aten::mm", "aten::mm", "aten::silu", "aten::mul"}, {}},
           {"mlp", Naming::kLlama, true, {"aten::mm", "aten::mm", "aten::silu", "aten::mul"}, {}},
           {"moe_act", Naming::kOwnExperts, false, {"aten::silu", "aten::mul"}, {}},
           {"moe_act",
            Naming::kMixtral,
            true,
            {"aten::silu", "aten::mul", "aten::silu", "aten::mul"},
            {}},
           {"moe",
            Naming::kOwnExperts,
            false,
            {"aten::index", "aten::mm", "aten::mm", "aten::silu", "aten::mul", "aten::mm",
             "aten::mm", "aten::silu", "aten::mul"},
            {}},
           {"moe",
            Naming::kMixtral,
            true,
            {"aten::index", "aten::mm", "aten::mm", "aten::silu", "aten::mul", "aten::index",
             "aten::mm", "aten::mm", "aten::silu", "aten::mul"},
            {}},
           {"shared_experts",
            Naming::kQwenExperts,
            true,
            {"aten::mm", "aten::mm", "aten::silu", "aten::mul"},
            {}},
       }) {
    const Planned model(
        {.naming = each.naming, .layers = 2, .casting_norms = each.casting_norms},
        "[megatron]\nrecompute_granularity = \"selective\"\nrecompute_modules = [\"" +
            std::string(each.module) + "\"]");
    std::vector<std::string> repeated;
    for (const RecordedOperator& op : model.chunk().operators) {
      const bool of_an_anchor =
          std::any_of(model.chunk().anchors.begin(), model.chunk().anchors.end(),
                      [&](const Anchor& anchor) { return anchor.call == op.call; });
      const int layer = model.recorded().operators[static_cast<std::size_t>(op.call)].layer;
      if (layer == 1 && !of_an_anchor) repeated.push_back(op.name);
    }
    EXPECT_EQ(repeated, each.repeated) << each.module;
    std::vector<std::string> anchors;
    for (const Anchor& anchor : model.chunk().anchors) {
      anchors.push_back(anchor.name + ": " + anchor.reason);
    }
    EXPECT_EQ(anchors, each.anchors) << each.module;
  }
}

TEST(SelectiveRecompute, MeansAttentionIfNothingElseIsSaid) {
  const Planned model({.naming = Naming::kLlama, .layers = 2, .casting_norms = true},
                      "[megatron]\nrecompute_granularity = \"selective\"");
  ASSERT_EQ(model.chunk().operators.size(), 2U);
  EXPECT_THAT(model.chunk().operators[0].name, HasSubstr("flash_attention"));
}

// The residual stream runs through all layers; nothing saves it.
TEST(RecomputedLayers, OfALargeModelHoldOneAnchorEach) {
  const Planned model({.naming = Naming::kLlama, .layers = 126, .casting_norms = true},
                      "[internevo]\ncheckpoint = true");
  EXPECT_EQ(model.chunk().anchors.size(), 126U);
  EXPECT_THAT(model.plan.notes,
              ::testing::Contains("126 values are held as anchors (7.9 GiB), because replays start "
                                  "there"));
}

TEST(RecomputedLayers, ByARuleOfTheirOwnStillStartAtEachLayerWhereTheInputIsNotSaved) {
  const Planned model({.naming = Naming::kLlama, .layers = 4, .casting_norms = true},
                      "[[rule]]\nmade_in = \"model.layers\"\naction = \"recompute\"");
  expect_no_replay_leaves_its_group(model, 1);
  EXPECT_EQ(model.chunk().anchors.size(), 4U);
  EXPECT_THAT(model.plan.notes, ElementsAre(HasSubstr("4 values are held as anchors")));
}

TEST(RecomputedLayers, ByARuleOfTheirOwnRunThroughSavedInputsAndSaySo) {
  const std::string rule = "[[rule]]\nlayers = \"0..-1\"\naction = \"recompute\"\n";
  const Planned model({.layers = 4}, rule);
  EXPECT_THAT(
      model.plan.notes,
      ElementsAre(
          "3 recomputed buffers enter a layer from another one, so that replays run through "
          "several layers; a rule before it with group_inputs = 1 and action = \"keep\" "
          "would hold them"));
  const Planned with_inputs({.layers = 4},
                            "[[rule]]\ngroup_inputs = 1\naction = \"keep\"\n" + rule);
  EXPECT_THAT(with_inputs.plan.notes, IsEmpty());
}

}  // namespace
}  // namespace spillway
