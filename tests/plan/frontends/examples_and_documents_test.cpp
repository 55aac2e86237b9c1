#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "plan/support/plan_queries.hpp"
#include "plan/support/replay_check.hpp"
#include "plan/support/synthetic_profile.hpp"
#include "spillway/plan/curve.hpp"
#include "spillway/plan/diff.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/plan/module_words.hpp"
#include "spillway/plan/rules.hpp"
#include "util/files.hpp"

namespace spillway {
namespace {

std::vector<std::filesystem::path> examples() {
  std::vector<std::filesystem::path> found;
  for (const auto& each : std::filesystem::directory_iterator(SPILLWAY_EXAMPLE_RULES)) {
    if (each.path().extension() == ".toml") found.push_back(each.path());
  }
  return found;
}

TEST(ExampleRules, AreThere) { EXPECT_GE(examples().size(), 12U); }

TEST(ExampleRules, BeginWithWhatTheyAreFor) {
  for (const std::filesystem::path& path : examples()) {
    EXPECT_EQ(read_file("test", path).find("# "), 0U) << path;
  }
}

/// Models of the kind that an example was written for.
std::vector<testing::ModelSize> models_for(const std::filesystem::path& path) {
  using testing::Naming;
  const auto named = [&](const char* word) {
    return path.stem().string().find(word) != std::string::npos;
  };
  if (named("experts")) return {{.naming = Naming::kMixtral}, {.naming = Naming::kQwenExperts}};
  if (named("dropout")) return {{.naming = Naming::kGpt2, .dropout = true}};
  return {{.casting_norms = true, .copies = true},
          {.naming = Naming::kLlama, .casting_norms = true, .copies = true}};
}

Bytes kept(const Plan& plan) {
  Bytes bytes = testing::bytes_of(plan, ActionKind::kKeep);
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Anchor& anchor : chunk.anchors) {
      if (anchor.action.kind == ActionKind::kKeep) bytes += anchor.bytes;
    }
  }
  return bytes;
}

// Each has an effect on the models it was written for, and none of its rules is idle.
TEST(ExampleRules, DecideBuffersOfTheirModel) {
  for (const std::filesystem::path& path : examples()) {
    const Rules rules = load_rules(path);
    for (const testing::ModelSize& size : models_for(path)) {
      const Profile profile = testing::transformer_profile(size);
      const Plan plan = make_plan(profile, rules);
      EXPECT_LT(kept(plan), kept(make_plan(profile, {}))) << path;
      for (const std::string& note : plan.notes) {
        EXPECT_EQ(note.find("decided no buffer"), std::string_view::npos) << path << ": " << note;
      }
      EXPECT_FALSE(explain_rules(rules, shape_of(profile)).empty());
    }
  }
}

TEST(ExampleRules, AreExplainedByRulesThatReadTheSame) {
  const ModelShape shape = shape_of(16);
  for (const std::filesystem::path& path : examples()) {
    const Rules rules = load_rules(path);
    const std::string explained = explain_rules(rules, shape);
    Rules wanted = translate(rules, shape);
    Rules found = parse_rules(explained, "explained");
    for (Rule& rule : wanted.rules) rule.location = {};
    for (Rule& rule : found.rules) rule.location = {};
    wanted.notes.clear();
    EXPECT_EQ(found, wanted) << path << '\n' << explained;
  }
}

// Whatever the model: nothing that is recomputed lacks an input or needs its fallback.
TEST(ExampleRules, MakePlansThatCanBeExecuted) {
  using testing::Naming;
  for (const Naming naming : {Naming::kOwn, Naming::kLlama, Naming::kGpt2, Naming::kOwnExperts,
                              Naming::kMixtral, Naming::kQwenExperts}) {
    for (const bool casting : {false, true}) {
      const Profile profile = testing::transformer_profile(
          {.naming = naming, .layers = 4, .casting_norms = casting, .dropout = casting});
      for (const std::filesystem::path& path : examples()) {
        const Plan plan = make_plan(profile, load_rules(path));
        testing::check_replays(plan, profile);
        ASSERT_FALSE(::testing::Test::HasFailure()) << path;
        for (const Decision& decision : plan.chunks[0].decisions) {
          EXPECT_EQ(decision.reason.find("not recomputable"), std::string::npos) << path;
        }
        for (const std::string& note : plan.notes) {
          EXPECT_EQ(note.find("through several layers"), std::string::npos) << path;
        }
        EXPECT_EQ(plan_from_json(to_json(plan), "plan.json"), plan);
      }
    }
  }
}

std::string document(const char* name) {
  return read_file("test", std::filesystem::path(SPILLWAY_DOCS) / name);
}

TEST(RulesDocument, HoldsExamplesThatParse) {
  const std::string text = document("rules.md");
  int found = 0;
  for (std::size_t at = text.find("```toml\n"); at != std::string::npos;
       at = text.find("```toml\n", at)) {
    at += 8;
    const Rules rules = parse_rules(text.substr(at, text.find("```", at) - at), "docs/rules.md");
    EXPECT_FALSE(translate(rules, shape_of(16)).rules.empty());
    ++found;
  }
  EXPECT_GE(found, 4);
}

TEST(RulesDocument, NamesEveryModuleWord) {
  const std::string text = document("rules.md");
  for (const ModuleWord& word : module_words()) {
    EXPECT_NE(text.find("| `" + word.word + "` |"), std::string::npos) << word.word;
  }
}

TEST(RulesDocument, ListsEveryExample) {
  const std::string text = document("rules.md");
  for (const std::filesystem::path& path : examples()) {
    EXPECT_NE(text.find("`" + path.stem().string() + "`"), std::string::npos) << path;
  }
}

TEST(ProfileDocument, NamesTheSchemas) {
  const std::string text = document("profile-and-plan.md");
  EXPECT_NE(text.find(kProfileSchema), std::string::npos);
  EXPECT_NE(text.find(kPlanSchema), std::string::npos);
  EXPECT_NE(text.find(kPlanDifferenceSchema), std::string::npos);
  EXPECT_NE(text.find(kCurveSchema), std::string::npos);
}

}  // namespace
}  // namespace spillway
