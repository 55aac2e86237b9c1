#include "spillway/plan/module_words.hpp"

#include <algorithm>

#include "plan/policy/glob.hpp"
#include "plan/policy/module_words_text.hpp"
#include "util/toml_reader.hpp"

namespace spillway {
namespace {

struct WordsFile {
  std::vector<ModuleWord> words;
  std::vector<std::string> attention;
};

ModulePattern read_pattern(TomlReader reader) {
  ModulePattern pattern;
  pattern.scope = reader.texts("scope").value_or(std::vector<std::string>{});
  pattern.op = reader.texts("op").value_or(std::vector<std::string>{});
  reader.finish();
  return pattern;
}

ModuleWord read_word(const std::string& word, TomlReader reader) {
  ModuleWord found{word, reader.text("meaning").value_or(""), {}};
  for (const TomlReader& pattern : reader.tables("where")) {
    found.patterns.push_back(read_pattern(pattern));
  }
  reader.finish();
  return found;
}

WordsFile read_words_file() {
  const std::string file = "module_words.toml";
  const toml::table root = parse_toml(kModuleWordsText, file);
  TomlReader top(root, file, "");
  WordsFile found;
  std::vector<std::pair<int, ModuleWord>> by_line;  // A table does not keep the order of the file.
  for (const auto& [key, node] : root) {
    TomlReader reader = *top.table(key.str());
    if (key.str() == "operators") {
      found.attention = reader.texts("attention").value_or(std::vector<std::string>{});
      reader.finish();
    } else {
      const int line = reader.location().line;
      by_line.emplace_back(line, read_word(std::string(key.str()), std::move(reader)));
    }
  }
  std::sort(by_line.begin(), by_line.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [line, word] : by_line) found.words.push_back(std::move(word));
  return found;
}

const WordsFile& words_file() {
  static const WordsFile kFile = read_words_file();
  return kFile;
}

}  // namespace

const std::vector<ModuleWord>& module_words() { return words_file().words; }

const ModuleWord* find_module_word(std::string_view word) {
  for (const ModuleWord& each : module_words()) {
    if (each.word == word) return &each;
  }
  return nullptr;
}

bool in_module(const ModuleWord& word, std::string_view scope, std::string_view op) {
  return std::any_of(word.patterns.begin(), word.patterns.end(), [&](const ModulePattern& each) {
    return any_scope_matches(each.scope, scope) && any_glob_matches(each.op, op);
  });
}

const std::vector<std::string>& attention_operators() { return words_file().attention; }

}  // namespace spillway
