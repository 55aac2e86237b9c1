#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "plan/files.hpp"
#include "plan_queries.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/plan/module_words.hpp"
#include "spillway/plan/rules.hpp"
#include "synthetic_profile.hpp"

namespace spillway {
namespace {

std::vector<std::filesystem::path> examples() {
  std::vector<std::filesystem::path> found;
  for (const auto& each : std::filesystem::directory_iterator(SPILLWAY_EXAMPLE_RULES)) {
    if (each.path().extension() == ".toml") found.push_back(each.path());
  }
  return found;
}

TEST(ExampleRules, AreThere) { EXPECT_GE(examples().size(), 6U); }

// Each has an effect on a model of the kind it was written for, and none of its rules is idle.
TEST(ExampleRules, DecideBuffersOfTheirModel) {
  for (const std::filesystem::path& path : examples()) {
    const Rules rules = load_rules(path);
    const bool experts = path.stem().string().find("experts") != std::string::npos;
    const auto naming = experts ? testing::Naming::kMixtral : testing::Naming::kLlama;
    const Profile profile = testing::transformer_profile({.naming = naming, .layers = 16});
    const Plan plan = make_plan(profile, rules);
    const Bytes kept = testing::bytes_of(plan, ActionKind::kKeep);
    EXPECT_LT(kept, testing::bytes_of(make_plan(profile, {}), ActionKind::kKeep)) << path;
    for (const std::string& note : plan.notes) {
      EXPECT_EQ(note.find("decided no buffer"), std::string_view::npos) << path << ": " << note;
    }
    EXPECT_FALSE(explain_rules(rules, shape_of(profile)).empty());
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

TEST(ProfileDocument, NamesTheSchemas) {
  const std::string text = document("profile-and-plan.md");
  EXPECT_NE(text.find(kProfileSchema), std::string::npos);
  EXPECT_NE(text.find(kPlanSchema), std::string::npos);
}

}  // namespace
}  // namespace spillway
