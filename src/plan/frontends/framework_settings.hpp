/// One pair of functions a framework: its section of a rules file, checked, and the rules it means.
/// To add a framework: its settings in frameworks.hpp, a file with this pair, one line in each of
/// parse_rules() and translate(), its table in docs/rules.md.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "spillway/plan/frameworks.hpp"
#include "spillway/plan/rules.hpp"
#include "util/toml_reader.hpp"

namespace spillway {

/// The largest number of layers that a file may give.
inline constexpr int kMostLayers = 1'000'000;

/// Read a section. Valid keys without effect go to `notes`.
/// Errors: ConfigError, also for combinations without meaning.
[[nodiscard]] InternEvoSettings read_internevo(TomlReader& section,
                                               std::vector<std::string>& notes);
[[nodiscard]] MegatronSettings read_megatron(TomlReader& section, std::vector<std::string>& notes);
[[nodiscard]] PaddleSettings read_paddle(TomlReader& section, std::vector<std::string>& notes);

/// Add the rules, limits and notes that the settings mean to `rules`.
/// Errors: ConfigError if the settings do not fit the model.
void add_rules(const InternEvoSettings& settings, const ModelShape& shape, Rules& rules);
void add_rules(const MegatronSettings& settings, const ModelShape& shape, Rules& rules);
void add_rules(const PaddleSettings& settings, const ModelShape& shape, Rules& rules);

/// How many layers a chunk has.
[[nodiscard]] inline int count_of(const LayerRange& chunk) { return chunk.last - chunk.first + 1; }
/// The layers `first`, `first` + 1, ... up to, not including, `end` of each chunk, counted within
/// it; nothing if all are empty.
[[nodiscard]] std::optional<LayerSet> layers_of_chunks(const ModelShape& shape, int first, int end);
/// A number above that of any layer.
inline constexpr int kAllLayers = std::numeric_limits<int>::max();

/// Errors: ConfigError if the model has no layers, which `key` counts.
void require_layers(const ModelShape& shape, const SourceLocation& location,
                    const std::string& key);

/// A rule with the parts that all translated rules have.
[[nodiscard]] Rule named_rule(std::string name, const SourceLocation& location, ActionKind action);

}  // namespace spillway
