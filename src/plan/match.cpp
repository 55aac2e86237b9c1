#include "plan/match.hpp"

#include <algorithm>

#include "plan/glob.hpp"
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

Matcher::Matcher(const ChunkProfile& chunk, int layers)
    : layers_(layers), elements_(chunk.buffers.size()) {
  for (const SiteProfile& site : chunk.sites) {
    std::uint64_t& most = elements_[static_cast<std::size_t>(site.buffer)];
    most = std::max(most, elements_of(site));
  }
}

std::size_t Matcher::first_module(const std::vector<std::string>& words,
                                  const BufferProfile& buffer) {
  const auto found = std::find_if(words.begin(), words.end(), [&buffer](const std::string& word) {
    return saved_in_module(word, buffer);
  });
  return static_cast<std::size_t>(found - words.begin());
}

bool Matcher::in_layers(const Rule& rule, const BufferProfile& buffer) const {
  if (!rule.layers && !rule.group_inputs) return true;
  static const LayerSet kEveryLayer{{{0, -1}}};
  const LayerSet& set = rule.layers ? *rule.layers : kEveryLayer;
  if (buffer.layer < 0 || !set.contains(buffer.layer, layers_)) return false;
  if (!rule.group_inputs) return true;
  const int first = set.range_of(buffer.layer, layers_).first;
  const int group = first + (buffer.layer - first) / *rule.group_inputs * *rule.group_inputs;
  return buffer.producer.layer < group;
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

}  // namespace spillway
