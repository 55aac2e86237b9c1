#include "spillway/plan/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using ::testing::ContainsRegex;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::plan_by;
using testing::transformer_profile;

constexpr const char* kRules = R"(
[[rule]]
name = "attention"
layers = "0..-2"
module = "core_attn"
action = "offload"
[[rule]]
scope = "*.mlp.act"
action = "recompute"
[[rule]]
scope = "nowhere"
action = "offload"
[limits]
host = "64 GiB")";

TEST(ExplainedPlan, FoldsLayersAndSaysWhatWhyAndHowMuch) {
  const std::string text = explain(plan_by(transformer_profile({.layers = 4}), kRules));
  EXPECT_THAT(text, HasSubstr("plan for structure "));
  EXPECT_THAT(text, ContainsRegex("scope +saved by +buffers +bytes +action +why\n"));
  EXPECT_THAT(text,
              ContainsRegex("layers\\.0\\.\\.2\\.attention\\.core +"
                            "aten::_scaled_dot_product_flash_attention +15 +481.5 MiB +offload +"
                            "rule 1 \"attention\" \\(r\\.toml:2\\)\n"));
  EXPECT_THAT(text,
              ContainsRegex("layers\\.3\\.attention\\.core +[^ ]+ +5 +160.5 MiB +keep +nothing "
                            "matched: keep\n"));
  EXPECT_THAT(text,
              ContainsRegex("layers\\.0\\.\\.3\\.mlp\\.act +aten::mul +8 +1.8 GiB +recompute +rule "
                            "2 \\(r\\.toml:7\\)\n"));
  EXPECT_THAT(text, ContainsRegex("lm_head +aten::mm +1 +64.0 MiB +keep +nothing matched: keep\n"));
  EXPECT_THAT(text, ContainsRegex("\\(anywhere\\) +29 +[0-9.]+ GiB +keep +fixed: parameter\n"));
  EXPECT_THAT(text,
              ContainsRegex("totals\n  action +buffers +bytes +share\n  keep +[0-9]+ +[0-9.]+ GiB "
                            "+[0-9.]+ %\n  offload +15 +481.5 MiB +[0-9.]+ %\n  recompute +12 +"
                            "[0-9.]+ GiB +[0-9.]+ %\n  fixed +38 +[0-9.]+ GiB\n"));
  EXPECT_THAT(text,
              ContainsRegex("host memory +64.0 GiB\n  offload window +left to the session\n"));
  EXPECT_THAT(text, HasSubstr("notes\n  - rule 3 (r.toml:10) decided no buffer\n"));
}

TEST(ExplainedPlan, CountsItsResidencyLists) {
  Plan plan = plan_by(transformer_profile({.layers = 2}), kRules);
  EXPECT_THAT(explain(plan), Not(HasSubstr("residency lists")));
  Residency list;
  plan.chunks[0].residency.add(list);
  EXPECT_THAT(explain(plan), ContainsRegex("residency lists +1 for 1 pass\n"));
  list.held = {1};
  plan.chunks[0].residency.add(list);
  plan.chunks[0].residency.add(list);
  plan.cap = Bytes(1 << 20);
  EXPECT_THAT(explain(plan), ContainsRegex("cap on managed buffers +1.0 MiB\n"));
  EXPECT_THAT(explain(plan), ContainsRegex("residency lists +2 for 3 passes\n"));
}

TEST(ExplainedPlan, SaysWithTheProfileWhoMadeWhatAndHowFastItWas) {
  const Profile profile = transformer_profile({.layers = 2});
  const std::string text = explain(plan_by(profile, kRules), &profile);
  EXPECT_THAT(
      text, HasSubstr("recorded on NVIDIA H200, 2 layers in \"layers\"\nlink: out 55.3 GB/s, back "
                      "55.5 GB/s, both at once 50.8 GB/s and 50.8 GB/s\nchunk 0: forward "));
  Profile slowed = profile;
  slowed.link.slows_out = 0.007;
  slowed.link.slows_back = 0.012;
  EXPECT_THAT(explain(plan_by(profile, kRules), &slowed),
              HasSubstr("50.8 GB/s; copies slow operators down by 0.7 % and 1.2 %\nchunk 0"));
  EXPECT_THAT(text, ContainsRegex("scope +saved by +made by +buffers"));
  EXPECT_THAT(text, ContainsRegex("layers\\.0\\.\\.1\\.mlp\\.act +aten::mul +aten::silu +2 +"));
  EXPECT_THAT(text, ContainsRegex("layers\\.0\\.\\.1\\.mlp\\.act +aten::mul +aten::mm +2 +"));
}

TEST(ExplainedPlan, ShowsWhatReplaysStartFrom) {
  const Profile profile =
      transformer_profile({.naming = testing::Naming::kLlama, .layers = 4, .casting_norms = true});
  const Plan plan = plan_by(
      profile,
      "[[rule]]\nname = \"inputs\"\nlayers = \"1..2\"\ngroup_inputs = 1\naction = \"offload\"\n"
      "[[rule]]\nlayers = \"1..2\"\naction = \"recompute\"\n[limits]\nhost = \"100 MiB\"");
  for (const Profile* with : {static_cast<const Profile*>(nullptr), &profile}) {
    const std::string text = explain(plan, with);
    EXPECT_THAT(
        text, HasSubstr("\nreplays of chunk 0: " + std::to_string(plan.chunks[0].operators.size()) +
                        " operator calls recorded, 2 anchors, 128.0 MiB\n"));
    EXPECT_THAT(text, ContainsRegex("scope +made by +anchors +bytes +action +why\n"));
    EXPECT_THAT(text,
                ContainsRegex("model\\.layers\\.0\\.\\.1 +aten::add +2 +128.0 MiB +offload +enters "
                              "a recomputed layer; rule 1 \"inputs\" \\(r\\.toml:1\\)\n"));
    EXPECT_THAT(text, ContainsRegex("\n  offload \\(anchors\\) +2 +128.0 MiB +[0-9.]+ %\n"));
    EXPECT_THAT(
        text, HasSubstr("  - one pass of each chunk offloads 132.0 MiB, more than [limits] host"));
    EXPECT_THAT(text,
                HasSubstr("  - 2 values are held as anchors (128.0 MiB), because replays start "
                          "there\n"));
  }
  // There are no anchors for replays that start from saved buffers.
  const std::string saved = explain(plan_by(transformer_profile({.layers = 2}), kRules));
  EXPECT_THAT(saved, ContainsRegex(
                         "replays of chunk 0: [0-9]+ operator calls recorded, 0 anchors, 0 B\n\n"));
  const std::string nothing = explain(plan_by(transformer_profile({.layers = 2}), ""));
  EXPECT_EQ(nothing.find("replays"), std::string::npos);
}

TEST(ExplainedPlan, RefusesAProfileOfAnotherStructure) {
  const Profile profile = transformer_profile({.layers = 2});
  const Profile other = transformer_profile({.layers = 3});
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)explain(plan_by(profile, kRules), &other); }),
            "[explain] the plan was made for structure " + structure_digest(profile) +
                ", the profile has " + structure_digest(other) +
                "; give the profile that the plan was made from");
  Plan shorter = plan_by(profile, kRules);
  shorter.chunks[0].decisions.pop_back();
  EXPECT_THROW((void)explain(shorter, &profile), InvalidArgument);
}

TEST(ExplainedPlan, ShowsBudgetPredictionsAndBound) {
  Plan plan;
  EXPECT_EQ(explain(plan).find("planned"), std::string::npos);
  plan.predicted_step_ns = 390'250'000;
  EXPECT_THAT(explain(plan), HasSubstr("\nplanned\n  predicted step  390.2 ms\n"));
  plan.budget = Bytes(8ULL << 30U);
  plan.predicted_peak = Bytes(5ULL << 30U);
  plan.base_step_ns = 380'000'000;
  plan.bound_step_ns = 388'000'000;
  EXPECT_THAT(explain(plan),
              HasSubstr("\nplanned\n"
                        "  budget           8.0 GiB\n"
                        "  predicted peak   5.0 GiB\n"
                        "  predicted step   390.2 ms, 1.027 x\n"
                        "  everything kept  380.0 ms\n"
                        "  bound            388.0 ms, 1.021 x; the plan is at most 0.6 % above any "
                        "plan of this kind\n"));
}

TEST(ExplainedRules, ReadBackAsTheSameRules) {
  for (const char* text :
       {"", kRules, "[[rule]]\naction = \"recompute\"\n[limits]\nrecompute_collectives = true",
        "[internevo]\ncpu_offloading = { enable = true, num_layers = 3 }\ncheckpoint = 0.5",
        "[internevo]\ncheckpoint = 0.9\nselective_checkpoint = true\nselective_checkpoint_offload "
        "= true\n"
        "num_chunks = 2",
        "[megatron]\nfine_grained_activation_offloading = true\noffload_modules = [\"fc1\", "
        "\"act\"]\n"
        "activation_offload_fraction = 0.7\nfine_grained_offloading_max_inflight_offloads = 2\n"
        "delta_offload_bytes_across_pp_ranks = 1000",
        "[megatron]\nrecompute_granularity = \"selective\"\nrecompute_modules = [\"layernorm\", "
        "\"moe\"]",
        "[megatron]\nrecompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n"
        "recompute_num_layers = 3\ndistribute_saved_activations = true",
        "[paddle]\nrecompute_interval = 4\nrecompute_offload = true\nrecompute_partition = true"}) {
    const Rules rules = parse_rules(text, "a.toml");
    for (const ModelShape& shape : {ModelShape{{{0, 15}}, 0}, ModelShape{{{0, 7}, {16, 23}}, 2}}) {
      const std::string explained = explain_rules(rules, shape);
      Rules wanted = translate(rules, shape);
      Rules found = parse_rules(explained, "b.toml");
      for (Rule& rule : wanted.rules) rule.location = {};
      for (Rule& rule : found.rules) rule.location = {};
      wanted.notes.clear();
      EXPECT_EQ(found, wanted) << explained;
    }
  }
}

TEST(ExplainedRules, ShowTheTranslationNotesAndTheModuleWords) {
  const Rules rules = parse_rules(
      "[megatron]\nfine_grained_activation_offloading = true\noffload_modules = [\"core_attn\"]",
      "m");
  const std::string text = explain_rules(rules, shape_of(4));
  EXPECT_THAT(text, HasSubstr("# [megatron] Megatron never offloads the last module of each kind"));
  EXPECT_THAT(text,
              HasSubstr("[[rule]]\nname = \"megatron: offload_modules\"\nmodule = \"core_attn\"\n"
                        "min_elements = 1048576\naction = \"offload\"\n"));
  EXPECT_THAT(text, HasSubstr("# core_attn: attention itself"));
  EXPECT_THAT(text, HasSubstr("#   *.attention.core\n"));
  EXPECT_EQ(text.find("# fc1"), std::string_view::npos);
  EXPECT_THAT(explain_rules({}, {}), HasSubstr("# no rules: everything is kept"));
}

}  // namespace
}  // namespace spillway
