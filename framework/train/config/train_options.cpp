#include "train/config/train_options.hpp"

#include <charconv>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

using Accepts = CommandOption::Accepts;

CommandOption number(const char* name, const char* key, const char* help) {
  return {name, "N", help, {key}, Accepts::kPositive, {}};
}

CommandOption flag(const char* name, const char* help, const char* old_name = "") {
  return {name, "", help, {}, Accepts::kNothing, {}, old_name};
}

int whole_number(const CommandOption& option, const std::string& text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number > 0) return number;
  throw InvalidArgument("train", option.name + ": \"" + text + "\" is no whole number above 0");
}

}  // namespace

std::vector<std::string> ConfigChoice::all() const {
  std::vector<std::string> texts = shorthands;
  texts.insert(texts.end(), overrides.begin(), overrides.end());
  return texts;
}

std::string CommandOption::full_help() const {
  std::string all;
  for (const std::string& key : keys) all += (all.empty() ? " (" : ", ") + key;
  return help + all + (keys.empty() ? "" : ")");
}

const std::vector<CommandOption>& config_options() {
  static const std::vector<CommandOption> options = {
      number("--layers", "model.layers", "Layers"),
      number("--hidden", "model.hidden", "Width of a layer"),
      number("--heads", "model.heads", "Attention heads"),
      number("--kv-heads", "model.kv_heads", "Heads of keys and values"),
      number("--ffn", "model.ffn", "Width within the MLP"),
      number("--tokens", "model.tokens", "Length of a sequence"),
      number("--vocabulary", "model.vocabulary", "Different tokens"),
      {"--dropout",
       "P",
       "Share of values that are dropped",
       {"model.dropout"},
       Accepts::kShare,
       {}},
      {"--dtype",
       "TYPE",
       "Type of the weights",
       {"model.dtype"},
       Accepts::kWord,
       {"float32", "bfloat16", "float64"}},
      {"--seed",
       "N",
       "Of weights, data and dropout",
       {"train.seed", "data.seed"},
       Accepts::kNotNegative,
       {}},
      {"--device", "DEVICE", "host, cuda or cuda:N", {"train.device"}, Accepts::kText, {}}};
  return options;
}

const std::vector<CommandOption>& train_options() {
  static const std::vector<CommandOption> options = {
      number("--steps", "train.steps", "Training steps"),
      {"--budget",
       "SIZE",
       "The most device memory of a step, above what is there before it: 8GiB, 33% of what it has "
       "with everything kept, or auto for what is free",
       {"memory.budget"},
       Accepts::kText,
       {}},
      {"--rules",
       "FILE",
       "The rules (TOML); with --budget they pin what they match",
       {"memory.rules"},
       Accepts::kText,
       {}},
      {"--plan",
       "FILE",
       "A plan made earlier (JSON); wins over rules",
       {"memory.plan"},
       Accepts::kText,
       {}},
      {"--out",
       "FOLDER",
       "Where metrics, reports, profile and plan go",
       {"train.out"},
       Accepts::kText,
       {}},
      flag("--compare",
           "Train without Spillway first, and compare losses and gradients bit for bit"),
      flag("--baseline", "Train without Spillway", "--plain"),  // The old name.
      flag("--digest", "Print a hash of the final parameters and one of all losses"),
      {"--verify-every",
       "N",
       "Verify every N steps: compare all that is recomputed with what was saved, bit for bit; the "
       "step after a recording step always does",
       {},
       Accepts::kPositive,
       {}},
      {"--trace",
       "FILE",
       "Where the last step goes as a trace for Perfetto (JSON): what its streams did and, if "
       "there "
       "is a profile, what was predicted; {rank} stands for the rank",
       {},
       Accepts::kText,
       {}}};
  return options;
}

void apply(ConfigChoice& config, const CommandOption& option, const std::string& value) {
  for (const std::string& key : option.keys) config.shorthands.push_back(key + "=" + value);
}

void apply(TrainOptions& options, const CommandOption& option, const std::string& value) {
  if (!option.keys.empty()) return apply(options.config, option, value);
  if (option.name == "--compare") {
    options.compare = true;
  } else if (option.name == "--baseline") {
    options.baseline = true;
  } else if (option.name == "--digest") {
    options.digest = true;
  } else if (option.name == "--verify-every") {
    options.verify_every = whole_number(option, value);
  } else if (option.name == "--trace") {
    options.trace = value;
  } else {
    throw InvalidArgument("train", "there is no option " + option.name);
  }
}

}  // namespace spillway::app
