// Old names of rules keys, and files of the last schema: they load and mean what the new ones do.
#include <utility>
#include <vector>

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

using Names = std::vector<std::pair<std::string, std::string>>;

/// A document of the last schema: `text` with each new name, in quotes, as the old one. Counts how
/// often each was found.
std::string in_old_words(std::string text, const Names& names, std::vector<int>& found) {
  found.resize(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string name = "\"" + names[i].second + "\"";
    const std::string old = "\"" + names[i].first + "\"";
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
      text.replace(at, name.size(), old);
      at += old.size();
      ++found[i];
    }
  }
  return text;
}

const Names& profile_names() {
  static const Names kNames = {{"spillway.profile/3", std::string(kProfileSchema)},
                               {"lasting", "persistent"},           // old name
                               {"let_go", "last_forward_use"},      // old name
                               {"other_bytes", "untracked_bytes"},  // old name
                               {"later_bytes", "later_untracked_bytes"},
                               {"held by the caller", "caller-owned"}};  // old name
  return kNames;
}

const Names& plan_names() {
  static const Names kNames = {{"spillway.plan/3", std::string(kPlanSchema)},
                               {"in_flight", "offload_window"},  // old name
                               {"ahead", "prefetch_window"},
                               {"second", "fallback"},
                               {"most_leaving", "max_pending_release"},                // old name
                               {"most_ahead", "max_prefetch"},                         // old name
                               {"held by the caller", "caller-owned"},                 // old name
                               {"fixed: held by the caller", "fixed: caller-owned"}};  // old name
  return kNames;
}

/// With a buffer that the caller owns.
Profile profile_with_every_name(std::mt19937_64& random) {
  Profile profile = testing::random_profile(random);
  for (ChunkProfile& chunk : profile.chunks) {
    if (!chunk.buffers.empty()) chunk.buffers[0].fixed = FixedReason::kCallerOwned;
  }
  return profile;
}

TEST(LastProfileSchema, LoadsAsTheSameProfile) {
  std::vector<int> found;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = profile_with_every_name(random);
    const std::string old = in_old_words(to_json(profile), profile_names(), found);
    ASSERT_EQ(profile_from_json(old, "p.json"), profile) << "seed " << seed << "\n" << old;
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_GT(found[i], 0) << profile_names()[i].second;
}

TEST(LastProfileSchema, HadAFieldThatIsDropped) {
  std::vector<int> found;
  const Profile profile = testing::transformer_profile({.layers = 1});
  std::string old = in_old_words(to_json(profile), profile_names(), found);
  const std::string field = "\"first_unpack\"";
  const std::size_t at = old.find(field);
  ASSERT_NE(at, std::string::npos);
  old.insert(at, "\"release_order\": 3, ");
  EXPECT_EQ(profile_from_json(old, "p.json"), profile);
}

TEST(LastPlanSchema, LoadsAsTheSamePlan) {
  std::vector<int> found;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    Plan plan = make_plan(profile_with_every_name(random), parse_rules(kNewRules, "r.toml"));
    plan.max_pending_release = Bytes(11);
    plan.max_prefetch = Bytes(12);
    const std::string old = in_old_words(to_json(plan), plan_names(), found);
    ASSERT_EQ(plan_from_json(old, "plan.json"), plan) << "seed " << seed << "\n" << old;
  }
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_GT(found[i], 0) << plan_names()[i].second;
}

TEST(LastPlanSchema, IsWrittenAsTheNewOne) {
  std::vector<int> found;
  const std::string old = in_old_words(to_json(Plan{}), plan_names(), found);
  EXPECT_THAT(to_json(plan_from_json(old, "plan.json")), HasSubstr(std::string(kPlanSchema)));
}

}  // namespace
}  // namespace spillway
