// Files may be edited by hand or truncated by full disks. For any content, reading returns a usable
// value or throws one of Spillway's errors, never another exception.
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "plan/support/synthetic_profile.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/plan/rules.hpp"
#include "support/random_cases.hpp"

namespace spillway {
namespace {

std::string damaged(std::string text, std::mt19937_64& random) {
  static constexpr std::string_view kCharacters = "{}[]\",:.=-+0123456789eEntf#*?\n\\ \x01\xff";
  for (std::uint64_t i = 1 + random() % 3; i > 0 && !text.empty(); --i) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = kCharacters[random() % kCharacters.size()];
        break;
      case 1:
        text.erase(at, 1 + random() % 12);
        break;
      case 2:
        text.insert(at, 1, kCharacters[random() % kCharacters.size()]);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 30));
        break;
    }
  }
  return text;
}

/// Damages `text` in many ways; returns how often reading it still succeeded.
int read_damaged(const std::string& text, int times,
                 const std::function<void(const std::string&)>& read) {
  int succeeded = 0;
  for (int seed = 0; seed < testing::cases_of(times); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const std::string broken = damaged(text, random);
    try {
      read(broken);
      ++succeeded;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("f.txt"), std::string::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << broken;
    }
  }
  return succeeded;
}

TEST(DamagedText, OfAProfileIsReadOrRefused) {
  const Rules rules = parse_rules("[paddle]\nrecompute_interval = 2", "r.toml");
  const auto read = [&](const std::string& text) {
    const Profile profile = profile_from_json(text, "f.txt");
    if (!shape_of(profile).chunks.empty()) (void)explain(make_plan(profile, rules), &profile);
  };
  const Profile profile = testing::transformer_profile({.layers = 1});
  EXPECT_GT(read_damaged(to_json(profile), 2000, read), 0);
}

TEST(DamagedText, OfAPlanIsReadOrRefused) {
  const Profile profile = testing::transformer_profile({.layers = 1});
  const Plan plan = make_plan(profile, parse_rules("[[rule]]\naction = \"offload\"", "r.toml"));
  const auto read = [](const std::string& text) { (void)explain(plan_from_json(text, "f.txt")); };
  EXPECT_GT(read_damaged(to_json(plan), 2000, read), 0);
}

TEST(DamagedText, OfRulesIsReadOrRefused) {
  const Profile profile = testing::transformer_profile({.layers = 2});
  const auto read = [&](const std::string& text) {
    const Rules rules = parse_rules(text, "f.txt");
    (void)make_plan(profile, rules);
    const Rules translated = translate(rules, shape_of(profile));
    (void)parse_rules(to_toml(translated), "f.txt");
  };
  const std::string own =
      "[[rule]]\nname = \"a\"\nscope = [\"layers.*\", \"b\"]\nlayers = \"0..1,-1\"\nmin_size = \"1 "
      "KiB\"\n"
      "module = [\"fc1\", \"act\"]\nfraction = 0.5\nskip = 10\naction = \"offload\"\nfallback = "
      "\"keep\"\n"
      "[limits]\nhost = \"64 GiB\"\nprefetch_window = 1000\n";
  EXPECT_GT(read_damaged(own, 3000, read), 0);
  const std::string megatron =
      "[megatron]\nfine_grained_activation_offloading = true\noffload_modules = [\"core_attn\"]\n"
      "min_offloaded_tensor_size = 100\nactivation_offload_fraction = 0.5\ncpu_offloading = true\n"
      "cpu_offloading_num_layers = 1\nrecompute_granularity = \"full\"\nrecompute_method = "
      "\"block\"\n"
      "recompute_num_layers = 1\n";
  EXPECT_GT(read_damaged(megatron, 3000, read), 0);
}

}  // namespace
}  // namespace spillway
