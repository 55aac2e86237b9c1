// Old names of rules keys, and files of the last schema: they load and mean what the new ones do.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using ::testing::AllOf;
using testing::error_text;
using ::testing::HasSubstr;

constexpr const char* kNewRules = R"([[rule]]
action = "recompute"
fallback = "offload"
[limits]
offload_window = "1 MiB"
prefetch_window = "2 MiB"
)";

// Each an old name.
constexpr const char* kOldRules = R"([[rule]]
action = "recompute"
second = "offload"
[limits]
in_flight = "1 MiB" # old name
ahead = "2 MiB"
)";

std::string renamed_key(const std::string& old, const std::string& name) {
  return "spillway: warning: rules key \"" + old + "\" is now called \"" + name +
         "\"; the old name works for one more release\n";
}

TEST(OldRulesKeys, LoadWithOneWarningEach) {
  ::testing::internal::CaptureStderr();
  const Rules rules = parse_rules(kOldRules, "r.toml");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(renamed_key("second", "fallback")),
                    HasSubstr(renamed_key("in_flight", "offload_window")),  // The old name.
                    HasSubstr(renamed_key("ahead", "prefetch_window"))));
  const Rules wanted = parse_rules(kNewRules, "r.toml");
  EXPECT_EQ(rules.rules, wanted.rules);
  EXPECT_EQ(rules.limits, wanted.limits);
  // Not again in this process.
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(parse_rules(kOldRules, "again.toml").limits, wanted.limits);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(OldRulesKeys, OfTheWindowInModulesLoadsAsWell) {
  const Rules rules = parse_rules("[limits]\nin_flight_modules = 2\n", "r.toml");  // old name
  EXPECT_EQ(rules.offload_window_modules, 2);
}

TEST(OldRulesKeys, AreRefusedBesideTheNewOnes) {
  const std::string text = "[limits]\nahead = 1\nprefetch_window = 1\n";
  EXPECT_EQ(error_text<ConfigError>([&] { (void)parse_rules(text, "r.toml"); }),
            "[rules] r.toml:2:9: ahead is the old name of prefetch_window; give one");
}

TEST(OldRulesKeys, AreCheckedLikeTheNewOnes) {
  EXPECT_THAT(
      error_text<ConfigError>([&] { (void)parse_rules("[limits]\nahead = \"much\"\n", "r.toml"); }),
      HasSubstr("r.toml:2:9: "));
}

/// `text` as the last schema had it: without signatures.
std::string as_before(std::string text, std::string_view schema, std::string_view last) {
  const std::size_t at = text.find(schema);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, schema.size(), last);
  EXPECT_EQ(text.find("signature"), std::string::npos);
  return text;
}

/// Profiles without signatures are those of the last schema.
Profile without_signatures(Profile profile) {
  for (ChunkProfile& chunk : profile.chunks) {
    for (SiteProfile& site : chunk.sites) site.signature = 0;
  }
  return profile;
}

Profile with_signatures(Profile profile) {
  std::uint64_t signature = 0;
  for (ChunkProfile& chunk : profile.chunks) {
    for (SiteProfile& site : chunk.sites) site.signature = ++signature << 40U;
  }
  return profile;
}

TEST(LastProfileSchema, LoadsAsTheSameProfileWithoutSignatures) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = with_signatures(testing::random_profile(random));
    ASSERT_EQ(profile_from_json(to_json(profile), "p.json"), profile) << "seed " << seed;
    const Profile before = without_signatures(profile);
    const std::string old = as_before(to_json(before), kProfileSchema, "spillway.profile/4");
    ASSERT_EQ(profile_from_json(old, "p.json"), before) << "seed " << seed << "\n" << old;
  }
}

TEST(LastPlanSchema, LoadsAsTheSamePlanWithoutSignatures) {
  const Rules rules = parse_rules(kNewRules, "r.toml");
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = with_signatures(testing::random_profile(random));
    const Plan plan = make_plan(profile, rules);
    ASSERT_EQ(plan_from_json(to_json(plan), "plan.json"), plan) << "seed " << seed;
    const Plan before = make_plan(without_signatures(profile), rules);
    const std::string old = as_before(to_json(before), kPlanSchema, "spillway.plan/5");
    ASSERT_EQ(plan_from_json(old, "plan.json"), before) << "seed " << seed << "\n" << old;
    EXPECT_TRUE(made_for(before, profile));
    EXPECT_EQ(with_signatures_of(profile, before), plan);
  }
}

TEST(LastPlanSchema, IsWrittenAsTheNewOne) {
  const std::string old = as_before(to_json(Plan{}), kPlanSchema, "spillway.plan/5");
  EXPECT_THAT(to_json(plan_from_json(old, "plan.json")), HasSubstr(std::string(kPlanSchema)));
}

}  // namespace
}  // namespace spillway
