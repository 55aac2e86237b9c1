#include "training.hpp"

namespace spillway::app {
namespace {

/// An option that is short for one key or several.
CLI::Option* shorthand(CLI::App& command, ConfigChoice& config, const std::string& name,
                       const std::vector<std::string>& keys, const std::string& text) {
  std::string all;
  for (const std::string& key : keys) all += (all.empty() ? "" : ", ") + key;
  return command.add_option_function<std::string>(
      name,
      [&config, keys](const std::string& value) {
        for (const std::string& key : keys) config.shorthands.push_back(key + "=" + value);
      },
      text + " (" + all + ")");
}

}  // namespace

std::vector<std::string> ConfigChoice::all() const {
  std::vector<std::string> texts = shorthands;
  texts.insert(texts.end(), overrides.begin(), overrides.end());
  return texts;
}

void add_config_options(CLI::App& command, ConfigChoice& config) {
  command.add_option("config", config.file, "Settings (TOML); without one, the defaults")
      ->type_name("FILE");
  command
      .add_option("--set", config.overrides,
                  "Set a key, after the file: model.layers=24; may be given several times")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  const char* group = "Short forms of --set";
  const auto number = [&](const char* name, const char* key, const char* text) {
    shorthand(command, config, name, {key}, text)
        ->check(CLI::PositiveNumber)
        ->type_name("N")
        ->group(group);
  };
  number("--layers", "model.layers", "Layers");
  number("--hidden", "model.hidden", "Width of a layer");
  number("--heads", "model.heads", "Attention heads");
  number("--kv-heads", "model.kv_heads", "Heads of keys and values");
  number("--ffn", "model.ffn", "Width within the MLP");
  number("--tokens", "model.tokens", "Length of a sequence");
  number("--vocabulary", "model.vocabulary", "Different tokens");
  shorthand(command, config, "--dropout", {"model.dropout"}, "Share of values that are dropped")
      ->check(CLI::Range(0.0, 0.99))
      ->type_name("P")
      ->group(group);
  shorthand(command, config, "--dtype", {"model.dtype"}, "Type of the weights")
      ->check(CLI::IsMember({"float32", "bfloat16", "float64"}))
      ->type_name("TYPE")
      ->group(group);
  shorthand(command, config, "--seed", {"train.seed", "data.seed"}, "Of weights, data and dropout")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group(group);
  shorthand(command, config, "--device", {"train.device"}, "host, cuda or cuda:N")
      ->type_name("DEVICE")
      ->group(group);
}

}  // namespace spillway::app
