#include "spillway/plan/layer_set.hpp"

#include <charconv>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& reason) {
  throw InvalidArgument("layers", "cannot read \"" + std::string(text) + "\" as layers: " + reason +
                                      R"(; write "3", "0..9", "0..9,12" or "-1" for the last)");
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

int read_number(std::string_view part, std::string_view text) {
  const std::string_view digits = trimmed(part);
  int number = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || rest != end) {
    refuse(text, "\"" + std::string(digits) + "\" is no layer number");
  }
  return number;
}

LayerRange read_range(std::string_view part, std::string_view text) {
  const std::size_t dots = part.find("..");
  if (dots == std::string_view::npos) {
    const int layer = read_number(part, text);
    return {layer, layer};
  }
  const LayerRange range{read_number(part.substr(0, dots), text),
                         read_number(part.substr(dots + 2), text)};
  const bool same_end = (range.first < 0) == (range.last < 0);
  if (same_end && range.first > range.last) {
    refuse(text, "\"" + std::string(trimmed(part)) + "\" runs backwards");
  }
  return range;
}

int from_start(int layer, int layers) { return layer < 0 ? layers + layer : layer; }

}  // namespace

LayerRange LayerSet::range_of(int layer, int layers) const {
  for (const LayerRange& each : ranges) {
    const LayerRange range{from_start(each.first, layers), from_start(each.last, layers)};
    if (range.first <= layer && layer <= range.last) return range;
  }
  return {0, -1};
}

bool LayerSet::contains(int layer, int layers) const {
  const LayerRange range = range_of(layer, layers);
  return range.first <= range.last;
}

LayerSet parse_layers(std::string_view text) {
  LayerSet set;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    set.ranges.push_back(read_range(rest.substr(0, comma), text));
    if (comma == std::string_view::npos) return set;
    rest.remove_prefix(comma + 1);
  }
}

std::string to_string(const LayerSet& layers) {
  std::string text;
  for (const LayerRange& range : layers.ranges) {
    if (!text.empty()) text += ',';
    text += std::to_string(range.first);
    if (range.last != range.first) text += ".." + std::to_string(range.last);
  }
  return text;
}

}  // namespace spillway
