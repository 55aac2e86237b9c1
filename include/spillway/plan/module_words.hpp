/// Words for parts of a transformer layer ("core_attn", "fc1"), as patterns over scopes and
/// operators. All of them stand in src/plan/policy/module_words.toml, for Spillway's own models and
/// for the names of Hugging Face's; docs/rules.md lists their meanings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Both lists must match, each by one of its patterns; an empty list always does.
struct ModulePattern {
  std::vector<std::string> scope;
  std::vector<std::string> op;

  bool operator==(const ModulePattern&) const = default;
};

struct ModuleWord {
  std::string word;
  std::string meaning;                  ///< One sentence.
  std::vector<ModulePattern> patterns;  ///< One of them must match.
};

/// In the order of the file, which is that of a layer.
[[nodiscard]] const std::vector<ModuleWord>& module_words();

/// Nothing for a word that is none.
[[nodiscard]] const ModuleWord* find_module_word(std::string_view word);

/// Whether an operator that ran in `scope` belongs to the module.
[[nodiscard]] bool in_module(const ModuleWord& word, std::string_view scope, std::string_view op);

/// Operators that compute attention in one call, as patterns.
[[nodiscard]] const std::vector<std::string>& attention_operators();

}  // namespace spillway
