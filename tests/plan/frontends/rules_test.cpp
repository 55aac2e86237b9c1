#include "spillway/plan/rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::error_text;

std::string refused(const std::string& text) {
  return error_text<ConfigError>([&] { (void)parse_rules(text, "memory.toml"); });
}

TEST(RulesText, GivesEveryKeyItsLocation) {
  const Rules rules = parse_rules(R"(# a comment
[[rule]]
name = "half of the MLP"
scope = "layers.*.mlp.*"
saved_by = ["aten::mm", "*scaled_dot_product*"]
module = "act"
producer = "aten::silu"
made_in = ["a", "b"]
made_in_module = ["fc1", "fc2"]
layers = "0..9,-1"
group_inputs = 2
min_size = "1 MiB"
max_size = 2147483648
min_elements = 1000
action = "offload"
tier = "host"
shard = true
fallback = "keep"
skip = "3 MiB"
fraction = 0.5

[limits]
host = "64 GiB"
offload_window = "1 GiB"
prefetch_window = "512 MiB"
min_size = 4096
recompute_cache = "2 MiB"
recompute_collectives = true
)",
                                  "memory.toml");
  Rule wanted;
  wanted.name = "half of the MLP";
  wanted.scope = {"layers.*.mlp.*"};
  wanted.saved_by = {"aten::mm", "*scaled_dot_product*"};
  wanted.module = {"act"};
  wanted.producer = {"aten::silu"};
  wanted.made_in = {"a", "b"};
  wanted.made_in_module = {"fc1", "fc2"};
  wanted.layers = LayerSet{{{0, 9}, {-1, -1}}};
  wanted.group_inputs = 2;
  wanted.min_size = 1_MiB;
  wanted.max_size = 2_GiB;
  wanted.min_elements = 1000;
  wanted.action = {ActionKind::kOffload, true};
  wanted.fallback = ActionKind::kKeep;
  wanted.skip = 3_MiB;
  wanted.fraction = 0.5;
  wanted.location = {"memory.toml", 2, 1};
  EXPECT_TRUE(rules.recompute_collectives);
  ASSERT_EQ(rules.rules.size(), 1U);
  EXPECT_EQ(rules.rules[0], wanted);
  EXPECT_EQ(rules.limits, (Limits{64_GiB, 1_GiB, 512_MiB, 4_KiB, std::nullopt, 2_MiB}));
  EXPECT_TRUE(rules.notes.empty());
  EXPECT_FALSE(rules.settings);
}

TEST(RulesText, MayBeEmpty) {
  const Rules rules = parse_rules("", "memory.toml");
  EXPECT_TRUE(rules.rules.empty());
  EXPECT_EQ(rules.limits, Limits{});
}

TEST(RulesText, TakesALayerAsANumberToo) {
  const Rules rules = parse_rules(
      "[[rule]]\nlayers = -1\naction = \"keep\"\n[limits]\noffload_window_modules = 2", "r");
  EXPECT_EQ(rules.rules.at(0).layers, (LayerSet{{{-1, -1}}}));
  EXPECT_EQ(rules.offload_window_modules, 2);
}

struct WrongRules {
  const char* text;
  const char* error;
};

TEST(RulesText, SaysFileLineColumnKeyAndTheNearestWord) {
  for (const WrongRules& each : {
           WrongRules{"[[rule]]\naction = \"offload\"\nscop = \"x\"",
                      "3:1: unknown key \"scop\" in [[rule]]; did you mean \"scope\"?"},
           {"[[rule]]\n  action = \"offlod\"",
            "2:12: action: unknown word \"offlod\"; did you mean \"offload\"?"},
           {"[[rule]]\naction = \"zzzzzzzzzzzzz\"",
            "2:10: action: unknown word \"zzzzzzzzzzzzz\"; there are: keep, offload, recompute"},
           {"[[rule]]\naction = 3", "2:10: action: a word wanted, found the number 3"},
           {"# one\n[[rule]]\nscope = \"x\"",
            "2:1: [[rule]] has no action; write action = \"keep\", \"offload\" or \"recompute\""},
           {"[[rules]]\naction = \"keep\"", "1:3: unknown key \"rules\"; did you mean \"rule\"?"},
           {"[rule]\naction = \"keep\"", "1:1: rule must be written [[rule]]"},
           {"rule = 1", "1:8: rule must be written [[rule]]"},
           {"limits = 1", "1:10: limits: a table wanted, found the number 1"},
           {"[limits]\nhost = true",
            "2:8: host: a size such as \"1 MiB\" or a number of bytes wanted, found true"},
           {"[limits]\nhost = \"64 GiX\"",
            "2:8: host cannot read \"64 GiX\" as a size: unknown unit \"GiX\" at character 4; "
            "write a number and a unit, such as \"8 GiB\", \"1.5 GB\", \"512 MiB\" or \"0\""},
           {"[limits]\nhost = -1", "2:8: host = -1 is impossible: a size cannot be negative"},
           {"[limits]\nhots = 1", "2:1: unknown key \"hots\" in [limits]; did you mean \"host\"?"},
           {"[limits]\noffload_window = 1\noffload_window_modules = 1",
            "3:26: offload_window_modules says the same as offload_window in other units; give one "
            "of them"},
           {"[limits]\nslowdown = 0.02\nprefetch_window = 1",
            "2:12: slowdown applies to windows that the session chooses, but offload_window, "
            "offload_window_modules or prefetch_window sets one; remove slowdown or those keys"},
           {"[limits]\nslowdown = 2", "2:12: slowdown = 2 is impossible: it must be from 0 to 1"},
           {"[[rule]]\naction = \"offload\"\nfraction = 1.5",
            "3:12: fraction = 1.5 is impossible: it must be from 0 to 1"},
           {"[[rule]]\naction = \"offload\"\nfraction = nan",
            "3:12: fraction = nan is impossible: it must be from 0 to 1"},
           {"[[rule]]\naction = \"offload\"\nfraction = \"half\"",
            "3:12: fraction: a number wanted, found the text 'half'"},
           {"[[rule]]\naction = \"keep\"\nlayers = \"9..0\"",
            "3:10: layers cannot read \"9..0\" as layers: \"9..0\" runs backwards; write \"3\", "
            "\"0..9\", \"0..9,12\" or \"-1\" for the last"},
           {"[[rule]]\naction = \"keep\"\nlayers = [1, 2]",
            "3:10: layers: a text wanted, found a list"},
           {"[[rule]]\naction = \"keep\"\nscope = 7",
            "3:9: scope: a text or a list of texts wanted, found the number 7"},
           {"[[rule]]\naction = \"keep\"\nscope = [\"a\", 7]",
            "3:9: scope: a text or a list of texts wanted, found a list"},
           {"[[rule]]\naction = \"keep\"\nscope = []",
            "3:9: scope = [] is impossible: an empty list matches nothing; leave the key out"},
           {"[[rule]]\naction = \"keep\"\nmodule = [\"fc1\", \"core_atn\"]",
            "3:18: module: unknown word \"core_atn\"; did you mean \"core_attn\"?"},
           {"[[rule]]\naction = \"keep\"\nmin_size = \"2 MiB\"\nmax_size = \"1 MiB\"",
            "4:12: max_size = '1 MiB' is impossible: it is less than min_size, so nothing can "
            "match"},
           {"[[rule]]\naction = \"keep\"\nfallback = \"keep\"",
            "3:12: fallback = 'keep' is impossible: it is what to do when the action is not "
            "possible, so it must differ"},
           {"[[rule]]\naction = \"offload\"\nfallback = \"recompute\"",
            "3:12: fallback = 'recompute' is impossible: when the action turns out to be "
            "impossible it is too "
            "late to record what recomputing needs; write \"keep\" or \"offload\""},
           {"[[rule]]\naction = \"recompute\"\nshard = true",
            "3:9: shard = true is impossible: a recomputed buffer is not stored, so there is "
            "nothing to shard"},
           {"[[rule]]\naction = \"offload\"\ntier = \"file\"",
            "3:8: tier = 'file' is impossible: there is no file tier yet; write \"host\" or leave "
            "the key out"},
           {"[limits]\nhost = 4611686018427387904",
            "2:8: host = 4611686018427387904 is impossible: a size is at most 256.0 TiB"},
           {"[[rule]]\naction = \"keep\"\ntier = \"host\"",
            "3:8: tier = 'host' is impossible: only action = \"offload\" moves a buffer to a tier"},
           {"[[rule]]\naction = \"offload\"\ntier = \"disk\"",
            "3:8: tier: unknown word \"disk\"; there are: host, file"},
           {"[[rule]]\naction = \"keep\"\ngroup_inputs = 0",
            "3:16: group_inputs = 0 is impossible: it must be at least 1"},
           {"[[rule]]\naction = \"keep\"\nmin_elements = 1.5",
            "3:16: min_elements: a whole number wanted, found the number 1.5"},
           {"[paddle]\n[megatron]",
            "1:1: [paddle] and [megatron] are both given; nothing says which comes first, so use "
            "one "
            "and add [[rule]]s for the rest"},
           {"[megatrn]", "1:2: unknown key \"megatrn\"; did you mean \"megatron\"?"},
       }) {
    EXPECT_EQ(refused(each.text), std::string("[rules] memory.toml:") + each.error) << each.text;
  }
}

TEST(RulesText, ThatIsNotTomlIsAnErrorWithItsLocation) {
  EXPECT_THAT(refused("[[rule]]\naction = offload"),
              ::testing::StartsWith("[rules] memory.toml:2:10: not TOML: "));
  EXPECT_THAT(refused("[limits]\nhost = 1\nhost = 2"),
              ::testing::StartsWith("[rules] memory.toml:3:"));
}

TEST(RulesText, IsWrittenSoThatItReadsTheSame) {
  const Rules rules = parse_rules(R"(
[[rule]]
name = 'odd "\ name'
scope = ["a", 'b"']
layers = "0..3,4..7"
min_size = 1000
max_size = "3 GiB"
fraction = 0.333333333333333
action = "offload"
tier = "host"
[[rule]]
action = "keep"
fraction = 0
skip = 1
[limits]
offload_window_modules = 0
prefetch_window = "1.5 GiB")",
                                  "a.toml");
  Rules again = parse_rules(to_toml(rules), "b.toml");
  ASSERT_EQ(again.rules.size(), rules.rules.size());
  for (std::size_t i = 0; i < rules.rules.size(); ++i)
    again.rules[i].location = rules.rules[i].location;
  EXPECT_EQ(again, rules) << to_toml(rules);
  const Rules slower = parse_rules("[limits]\nslowdown = 0.025\n", "a.toml");
  EXPECT_EQ(slower.limits.slowdown, 0.025);
  EXPECT_EQ(parse_rules(to_toml(slower), "b.toml"), slower) << to_toml(slower);
}

}  // namespace
}  // namespace spillway
