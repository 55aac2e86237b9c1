#include "spillway/core/numbers.hpp"
#include "train/config/config_keys.hpp"
#include "util/text/wrapped.hpp"
#include "util/toml_text.hpp"

namespace spillway::app {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

/// Larger limits keep arithmetic safe; they are not worth printing.
constexpr std::int64_t kWorthSaying = 1'000'000;

}  // namespace

std::string value_text(const ConfigKey& key, const TrainConfig& config) {
  // The members are the same of a config that may not be changed.
  auto& values = const_cast<TrainConfig&>(config);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return std::visit(
      Overloaded{
          [&](const WholeKey& kind) { return std::to_string(kind.member(values)); },
          [&](const NumberKey& kind) { return shortest(kind.member(values)); },
          [&](const FlagKey& kind) { return std::string(kind.member(values) ? "true" : "false"); },
          [&](const WordKey& kind) { return in_quotes(kind.member(values)); },
          [&](const TextKey& kind) { return in_quotes(kind.member(values)); },
      },
      key.kind);
}

std::string allowed_text(const ConfigKey& key) {
  return std::visit(Overloaded{
                        [](const WholeKey& kind) {
                          const std::string least = std::to_string(kind.least);
                          return kind.most >= kWorthSaying
                                     ? "at least " + least
                                     : least + " to " + std::to_string(kind.most);
                        },
                        [](const NumberKey& kind) {
                          const std::string least = shortest(kind.least);
                          return kind.most >= kWorthSaying ? "at least " + least
                                                           : least + " to " + shortest(kind.most);
                        },
                        [](const FlagKey& /*kind*/) { return std::string("true or false"); },
                        [](const WordKey& kind) {
                          std::string text;
                          for (std::size_t i = 0; i < kind.words.size(); ++i) {
                            if (i > 0) text += i + 1 == kind.words.size() ? " or " : ", ";
                            text += kind.words[i];
                          }
                          return text;
                        },
                        [](const TextKey& kind) { return kind.wanted; },
                    },
                    key.kind);
}

std::string to_toml(const TrainConfig& config) {
  std::string text;
  for (const std::string& table : config_tables()) {
    text += (text.empty() ? "[" : "\n[") + table + "]\n";
    for (const ConfigKey& key : config_keys()) {
      if (key.table != table) continue;
      text += "# " + key.help + " (" + allowed_text(key) + ")\n";
      text += key.name + " = " + value_text(key, config) + "\n";
    }
  }
  if (config.memory.inline_rules) text += "\n" + config.memory.inline_rules->text;
  return text;
}

std::string reference_markdown() {
  constexpr std::size_t kColumns = 120;  // Of Markdown in this repository.
  std::string text;
  for (const std::string& table : config_tables()) {
    text += (text.empty() ? "#### `[" : "\n#### `[") + table + "]`\n\n";
    for (const ConfigKey& key : config_keys()) {
      if (key.table != table) continue;
      const std::string item = "`" + key.name + " = " + value_text(key, {}) + "` (" +
                               allowed_text(key) + "): " + key.help;
      text += "- " + wrapped(item, 2, kColumns) + "\n";
    }
  }
  return text;
}

}  // namespace spillway::app
