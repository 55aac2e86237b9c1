/// The one table of a config's keys. Reading, writing, help and documents go through it, so they
/// cannot disagree; defaults are those of TrainConfig.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "train/config/config.hpp"

namespace spillway::app {

template <typename T>
using Member = std::function<T&(TrainConfig&)>;

struct WholeKey {
  Member<std::int64_t> member;
  std::int64_t least;
  std::int64_t most;
};

struct NumberKey {
  Member<double> member;
  double least;
  double most;
};

struct FlagKey {
  Member<bool> member;
};

struct WordKey {
  Member<std::string> member;
  std::vector<std::string> words;
};

struct TextKey {
  Member<std::string> member;
  std::string wanted;                           ///< "a file", for people.
  void (*check)(const std::string&) = nullptr;  ///< Throws InvalidArgument; not for empty texts.
};

struct ConfigKey {
  std::string table;
  std::string name;
  std::variant<WholeKey, NumberKey, FlagKey, WordKey, TextKey> kind;
  std::string help;  ///< One line.
  /// Another value gives other parameters after a step, so a run is not resumed with it.
  bool changes_results = false;

  /// "model.layers"
  [[nodiscard]] std::string path() const { return table + "." + name; }
};

/// In the order of files: tables one after the other.
[[nodiscard]] const std::vector<ConfigKey>& config_keys();
/// The tables, in that order.
[[nodiscard]] const std::vector<std::string>& config_tables();
/// Null if there is none.
[[nodiscard]] const ConfigKey* find_key(const std::string& path);

/// The key's value in `config` as TOML: `8`, `"llama"`.
[[nodiscard]] std::string value_text(const ConfigKey& key, const TrainConfig& config);
/// What it may be, for people: "at least 1", "llama | gpt".
[[nodiscard]] std::string allowed_text(const ConfigKey& key);
/// A section for each table of the config, an item for each key: its default, what it may be, its
/// meaning. Lines have at most 120 columns.
[[nodiscard]] std::string reference_markdown();

}  // namespace spillway::app
