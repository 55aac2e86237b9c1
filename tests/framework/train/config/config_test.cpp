#include "train/config/config.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "train/config/config_keys.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using ::testing::HasSubstr;

std::string refused(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return error_text<ConfigError>([&] { (void)parse_config(text, "run.toml", overrides); });
}

TEST(Config, OfAnEmptyFileIsTheDefault) {
  EXPECT_EQ(parse_config("", "run.toml"), TrainConfig());
  EXPECT_EQ(load_config(""), TrainConfig());
}

TEST(Config, DefaultIsUntiedWithEightLayers) {
  const TrainConfig config;
  EXPECT_EQ(config.model.kind, "llama");
  EXPECT_EQ(config.model.layers, 8);
  EXPECT_FALSE(config.model.tied);
}

TEST(Config, TakesValuesOfEveryTypeFromItsTables) {
  const TrainConfig config = parse_config(R"(
[model]
kind = "gpt"
layers = 12
kv_heads = 0
tied = true
dropout = 0.1
[data]
path = "a.bin"
[train]
precision = "bf16"
[optimizer]
learning_rate = 1
[parallel]
pipeline = 2
virtual = 3
segmentation = "0,2,4,6,8,10,12"
[memory]
budget = "33%"
)",
                                          "run.toml");
  EXPECT_EQ(config.model.kind, "gpt");
  EXPECT_EQ(config.model.layers, 12);
  EXPECT_EQ(config.model.key_heads(), config.model.heads);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.model.dropout, 0.1);
  EXPECT_EQ(config.data.path, "a.bin");
  EXPECT_EQ(config.train.precision, "bf16");
  EXPECT_EQ(config.optimizer.learning_rate, 1);
  EXPECT_EQ(config.parallel.pipeline, 2);
  EXPECT_EQ(config.parallel.virtual_stages, 3);
  EXPECT_EQ(config.memory.budget, "33%");
}

TEST(Config, NamesLocationAndNearestWordOfWhatIsWrong) {
  EXPECT_EQ(refused("[model]\nlayer = 4\n"),
            "[config] run.toml:2:1: unknown key \"layer\" in [model]; did you mean \"layers\"?");
  EXPECT_EQ(refused("[modle]\nlayers = 4\n"),
            "[config] run.toml:1:2: unknown key \"modle\"; did you mean \"model\"?");
  EXPECT_EQ(refused("[model]\nkind = \"lama\"\n"),
            "[config] run.toml:2:8: kind: unknown word \"lama\"; did you mean \"llama\"?");
  EXPECT_EQ(refused("[model]\nlayers = 0\n"),
            "[config] run.toml:2:10: layers = 0 is impossible: it must be at least 1");
  EXPECT_EQ(refused("[model]\nlayers = \"many\"\n"),
            "[config] run.toml:2:10: layers: a whole number wanted, found the text 'many'");
  EXPECT_EQ(refused("[model]\ntied = 1\n"),
            "[config] run.toml:2:8: tied: true or false wanted, found the number 1");
  EXPECT_EQ(refused("model = 1\n"),
            "[config] run.toml:1:9: model: a table wanted, found the number 1");
  EXPECT_THAT(refused("[model\n"), HasSubstr("[config] run.toml:1:7: not TOML: "));
  EXPECT_THAT(refused("[memory]\nbudget = \"much\"\n"),
              HasSubstr("[config] run.toml:2:10: budget: \"much\" is no budget; give bytes"));
  EXPECT_THAT(refused("[train]\ndevice = \"gpu\"\n"),
              HasSubstr("run.toml:2:10: device: cannot read \"gpu\""));
  EXPECT_THAT(refused("[parallel]\nsegmentation = \"0,3,3\"\n"),
              HasSubstr("segmentation: \"0,3,3\" are no bounds: each is larger"));
}

TEST(Config, TakesAnAutomaticBudget) {
  EXPECT_EQ(parse_config("[memory]\nbudget = \"auto\"\n", "run.toml").memory.budget, "auto");
}

TEST(ConfigOverride, WinsOverTheFileAndTheLastOneWins) {
  const TrainConfig config =
      parse_config("[model]\nlayers = 4\n", "run.toml", {"model.layers=6", "model.layers = 7"});
  EXPECT_EQ(config.model.layers, 7);
}

TEST(ConfigOverride, TakesTextsWithAndWithoutQuotes) {
  const TrainConfig config = parse_config(
      "", "run.toml",
      {"model.kind=llama", "data.path=\"a b.txt\"", "train.out=2024-01-01", "train.clip=0.5",
       "model.tied=true", "memory.budget=33%", "train.checkpoint=a=b", "data.evaluation=''"});
  EXPECT_EQ(config.data.path, "a b.txt");
  EXPECT_EQ(config.train.out, "2024-01-01");
  EXPECT_EQ(config.train.clip, 0.5);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.memory.budget, "33%");
  EXPECT_EQ(config.train.checkpoint, "a=b");
  EXPECT_EQ(config.data.evaluation, "");
}

TEST(ConfigOverride, IsCheckedLikeTheFileAndNamedInErrors) {
  EXPECT_EQ(refused("", {"model.layers=0"}),
            "[config] --set model.layers=0: layers = 0 is impossible: it must be at least 1");
  EXPECT_EQ(refused("", {"model.layers=few"}),
            "[config] --set model.layers=few: layers: a whole number wanted, found the text 'few'");
  EXPECT_EQ(refused("", {"model.kind=lama"}),
            "[config] --set model.kind=lama: kind: unknown word \"lama\"; did you mean \"llama\"?");
  EXPECT_EQ(refused("", {"modle.layers=3"}),
            "[config] --set modle.layers=3: unknown key \"modle.layers\"; did you mean "
            "\"model.layers\"?");
  EXPECT_EQ(refused("", {"layers=3"}), "[config] --set layers=3: did you mean \"model.layers\"?");
  EXPECT_EQ(refused("", {"model.layers"}),
            "[config] --set model.layers: key=value wanted, such as --set model.layers=4");
  EXPECT_THAT(refused("", {"xyz=3"}),
              HasSubstr("unknown key \"xyz\"; `spillway config --defaults`"));
  EXPECT_THAT(refused("", {"memory.limits.host=1"}), HasSubstr("rules are not set one by one"));
}

constexpr const char* kInline = R"([memory]
budget = "8 GiB"

[[memory.rule]]
scope = ["layers.*", 'mlp "x"']
layers = "0..2"
action = "offload"

[[memory.rule]]
action = "keep"

[memory.limits]
host = "1 GiB"
)";

TEST(ConfigRules, MayStandUnderMemory) {
  const TrainConfig config = parse_config(kInline, "run.toml");
  ASSERT_TRUE(config.memory.inline_rules);
  const Rules rules = rules_of(config.memory).value();
  ASSERT_EQ(rules.rules.size(), 2U);
  EXPECT_EQ(rules.rules[0].scope, (std::vector<std::string>{"layers.*", "mlp \"x\""}));
  EXPECT_EQ(rules.rules[0].location, (SourceLocation{"run.toml", 4, 1}));
  EXPECT_EQ(rules.limits.host, Bytes(1ULL << 30U));
}

TEST(ConfigRules, MayBeTheWordsOfAFramework) {
  const TrainConfig config = parse_config("[memory.internevo]\ncheckpoint = 0.5\n", "run.toml");
  ASSERT_TRUE(config.memory.inline_rules);
  EXPECT_TRUE(config.memory.inline_rules->rules.settings);
  EXPECT_EQ(parse_config(to_toml(config), "again.toml"), config);
}

TEST(ConfigRules, AreCheckedAsInTheirOwnFile) {
  EXPECT_THAT(
      refused("[[memory.rule]]\naction = \"offlod\"\n"),
      HasSubstr("run.toml:2:10: action: unknown word \"offlod\"; did you mean \"offload\"?"));
  EXPECT_THAT(
      refused("[memory]\nbuget = \"1 GiB\"\n"),
      HasSubstr("run.toml:2:1: unknown key \"buget\" in [memory]; did you mean \"budget\"?"));
  EXPECT_THAT(
      refused("[memory]\nrules = \"r.toml\"\n[[memory.rule]]\naction = \"keep\"\n"),
      HasSubstr("run.toml:2:9: memory.rules = \"r.toml\" is impossible: the rules' tables"));
}

TEST(ConfigRules, MayHaveOldKeysWhichWarn) {
  ::testing::internal::CaptureStderr();
  // Each an old name.
  const TrainConfig old = parse_config(
      "[memory.limits]\nin_flight = \"1 MiB\" # old name\nahead = 5\n"
      "[[memory.rule]]\naction = \"recompute\"\nsecond = \"offload\"\n",
      "old.toml");
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "spillway: warning: config key \"second\" is now called \"fallback\"; the old name works "
      "for one more release\n"
      "spillway: warning: config key \"in_flight\" is now called \"offload_window\"; "  // old name
      "the old name works for one more release\n"
      "spillway: warning: config key \"ahead\" is now called \"prefetch_window\"; the old name "
      "works for one more release\n");
  const Rules rules = rules_of(old.memory).value();
  EXPECT_EQ(rules.rules[0].fallback, ActionKind::kOffload);
  EXPECT_EQ(rules.limits.offload_window, Bytes(1ULL << 20U));
  EXPECT_EQ(rules.limits.prefetch_window, Bytes(5));
  EXPECT_EQ(parse_config(to_toml(old), "again.toml"), old);
}

TEST(ConfigRules, OfAnEmptyConfigAreNone) { EXPECT_FALSE(rules_of(TrainConfig().memory)); }

TEST(ConfigText, IsReadAsTheSameConfig) {
  TrainConfig config = parse_config(kInline, "run.toml");
  EXPECT_EQ(parse_config(to_toml(config), "again.toml"), config);
  EXPECT_EQ(rules_of(parse_config(to_toml(config), "again.toml").memory)->rules[0].scope,
            rules_of(config.memory)->rules[0].scope);
  EXPECT_EQ(parse_config(to_toml({}), "again.toml"), TrainConfig());
  config.optimizer.learning_rate = 0.1 + 0.2;
  config.data.path = "a \"quoted\" \\ name";
  EXPECT_EQ(parse_config(to_toml(config), "again.toml"), config);
}

/// Another value than the one it has, or the same where the key has only one.
void change(const ConfigKey& key, TrainConfig& config) {
  struct Changer {
    TrainConfig& config;
    void operator()(const WholeKey& kind) const {
      std::int64_t& value = kind.member(config);
      value = value < kind.most ? value + 1 : value - 1;
    }
    void operator()(const NumberKey& kind) const {
      kind.member(config) = (kind.member(config) + kind.most) / 2;
    }
    void operator()(const FlagKey& kind) const { kind.member(config) ^= true; }
    void operator()(const WordKey& kind) const {
      kind.member(config) = kind.member(config) == kind.words[0] ? kind.words[1] : kind.words[0];
    }
    void operator()(const TextKey& kind) const { kind.member(config) += "x"; }
  };
  std::visit(Changer{config}, key.kind);
}

TEST(ConfigKeys, AreEachAMemberOfItsOwnAndWritten) {
  std::set<std::string> texts;
  for (const ConfigKey& key : config_keys()) {
    TrainConfig config;
    change(key, config);
    EXPECT_NE(config, TrainConfig()) << key.path();
    EXPECT_TRUE(texts.insert(to_toml(config)).second) << key.path();
    EXPECT_THAT(to_toml(config),
                HasSubstr("\n" + key.name + " = " + value_text(key, config) + "\n"));
  }
}

TEST(ConfigKeys, HaveOneLineOfHelpEachAndDefaultsThatAreAllowed) {
  std::set<std::string> paths;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(paths.insert(key.path()).second) << key.path();
    EXPECT_FALSE(key.help.empty()) << key.path();
    EXPECT_EQ(key.help.find('\n'), std::string::npos) << key.path();
    EXPECT_FALSE(allowed_text(key).empty()) << key.path();
    EXPECT_LE(key.help.size() + allowed_text(key).size(), 140U) << key.path();
  }
}

TEST(ConfigKeys, AreTheOnesThatScriptsRelyOn) {
  for (const char* path : {"parallel.pipeline", "parallel.virtual", "parallel.tensor",
                           "parallel.data", "parallel.expert", "train.steps", "train.micro_batches",
                           "train.seed", "train.precision", "memory.budget", "memory.rules"}) {
    EXPECT_NE(find_key(path), nullptr) << path;
  }
  EXPECT_EQ(find_key("model.layer"), nullptr);
}

}  // namespace
}  // namespace spillway::app
