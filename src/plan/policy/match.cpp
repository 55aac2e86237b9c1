#include "plan/policy/match.hpp"

#include <algorithm>

#include "plan/policy/glob.hpp"
#include "spillway/plan/module_words.hpp"

namespace spillway {
namespace {

std::uint64_t elements_of(const SiteProfile& site) {
  std::uint64_t count = 1;
  for (const std::int64_t size : site.sizes) count *= static_cast<std::uint64_t>(size);
  return count;
}

bool saved_where(const Rule& rule, const BufferProfile& buffer) {
  return std::any_of(buffer.saves.begin(), buffer.saves.end(), [&rule](const Save& save) {
    return any_scope_matches(rule.scope, save.scope) && any_glob_matches(rule.saved_by, save.saver);
  });
}

bool made_in_module(const Rule& rule, const Producer& producer) {
  return rule.made_in_module.empty() ||
         std::any_of(rule.made_in_module.begin(), rule.made_in_module.end(),
                     [&producer](const std::string& word) {
                       const ModuleWord* module = find_module_word(word);
                       return module != nullptr &&
                              in_module(*module, producer.scope, producer.name);
                     });
}

bool made_where(const Rule& rule, const Producer& producer) {
  return any_glob_matches(rule.producer, producer.name) &&
         any_scope_matches(rule.made_in, producer.scope) && made_in_module(rule, producer);
}

bool saved_in_module(const std::string& word, const BufferProfile& buffer) {
  const ModuleWord* module = find_module_word(word);
  if (module == nullptr) return false;
  return std::any_of(buffer.saves.begin(), buffer.saves.end(), [module](const Save& save) {
    return in_module(*module, save.scope, save.saver);
  });
}

}  // namespace

std::string name_of(const Rule& rule, std::size_t index) {
  std::string text = "rule " + std::to_string(index + 1);
  if (!rule.name.empty()) text += " \"" + rule.name + "\"";
  if (!rule.location.file.empty()) {
    text += " (" + rule.location.file + ":" + std::to_string(rule.location.line) + ")";
  }
  return text;
}

Matcher::Matcher(const ChunkProfile& chunk, int layers)
    : chunk_(chunk),
      layers_(layers),
      elements_(chunk.buffers.size()),
      reader_layers_(chunk.buffers.size()) {
  for (const SiteProfile& site : chunk.sites) {
    std::uint64_t& most = elements_[static_cast<std::size_t>(site.buffer)];
    most = std::max(most, elements_of(site));
  }
  for (const OperatorProfile& call : chunk.operators) {
    for (const int value : call.reads) {
      const int buffer = chunk.values[static_cast<std::size_t>(value)].buffer;
      if (buffer < 0 || chunk.buffers[static_cast<std::size_t>(buffer)].layer == call.layer)
        continue;
      std::vector<int>& known = reader_layers_[static_cast<std::size_t>(buffer)];
      if (known.empty() || known.back() != call.layer) known.push_back(call.layer);
    }
  }
}

std::size_t Matcher::first_module(const std::vector<std::string>& words,
                                  const BufferProfile& buffer) {
  const auto found = std::find_if(words.begin(), words.end(), [&buffer](const std::string& word) {
    return saved_in_module(word, buffer);
  });
  return static_cast<std::size_t>(found - words.begin());
}

int group_of(const Rule& rule, int layer, int layers) {
  static const LayerSet kEveryLayer{{{0, -1}}};
  const LayerSet& set = rule.layers ? *rule.layers : kEveryLayer;
  if (layer < 0 || !set.contains(layer, layers)) return -1;
  const int first = set.range_of(layer, layers).first;
  return first + (layer - first) / *rule.group_inputs * *rule.group_inputs;
}

bool Matcher::enters_group(const Rule& rule, int layer, int made_in) const {
  return made_in < group_of(rule, layer, layers_);
}

/// What enters a group may have been saved before it already, by what made it.
bool Matcher::in_layers(const Rule& rule, const BufferProfile& buffer) const {
  if (!rule.group_inputs) {
    return !rule.layers || (buffer.layer >= 0 && rule.layers->contains(buffer.layer, layers_));
  }
  if (enters_group(rule, buffer.layer, buffer.producer.layer)) return true;
  if (buffer.id < 0) return false;
  const std::vector<int>& readers = reader_layers_[static_cast<std::size_t>(buffer.id)];
  return std::any_of(readers.begin(), readers.end(),
                     [&](int layer) { return enters_group(rule, layer, buffer.producer.layer); });
}

bool Matcher::big_enough(const Rule& rule, const BufferProfile& buffer) const {
  return (!rule.min_size || buffer.size >= *rule.min_size) &&
         (!rule.max_size || buffer.size <= *rule.max_size) &&
         (!rule.min_elements ||
          elements_[static_cast<std::size_t>(buffer.id)] >= *rule.min_elements);
}

bool Matcher::matches(const Rule& rule, const BufferProfile& buffer) const {
  return in_layers(rule, buffer) && big_enough(rule, buffer) && saved_where(rule, buffer) &&
         made_where(rule, buffer.producer) &&
         (rule.module.empty() || first_module(rule.module, buffer) < rule.module.size());
}

bool Matcher::matches(const Rule& rule, const ValueProfile& value, int layer) const {
  if (!rule.saved_by.empty() || rule.min_elements) return false;
  const OperatorProfile& made_by = chunk_.operators[static_cast<std::size_t>(value.call)];
  BufferProfile seen;
  seen.id = -1;
  seen.size = value.size;
  seen.layer = layer;
  seen.producer = {made_by.name, made_by.scope, made_by.layer, value.call};
  seen.saves = {{made_by.name, made_by.scope}};
  return matches(rule, seen);
}

}  // namespace spillway
