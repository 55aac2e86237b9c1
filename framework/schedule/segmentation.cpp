#include <charconv>

#include "spillway/core/error.hpp"
#include "spillway/schedule/segment.hpp"

namespace spillway {
namespace {

constexpr std::string_view kLayerPrefix = "layer:";
constexpr std::string_view kAccepted =
    "accepted are uniform, layer:Name, memory, time, and bounds such as 0,4,8";

[[noreturn]] void refuse(std::string_view text, const std::string& problem) {
  throw InvalidArgument("segmentation", "\"" + std::string(text) + "\" " + problem);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<int> read_bounds(std::string_view text) {
  std::string_view list = trimmed(text);
  if (list.front() == '[') {
    if (list.back() != ']') refuse(text, "begins with \"[\" but does not end with \"]\"");
    list = list.substr(1, list.size() - 2);
  }
  std::vector<int> bounds;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view word = trimmed(list.substr(0, comma));
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) {
      refuse(text, "holds \"" + std::string(word) +
                       "\" where a whole number was wanted; write bounds such as 0,4,8");
    }
    bounds.push_back(number);
    if (comma == std::string_view::npos) return bounds;
    list.remove_prefix(comma + 1);
  }
}

const std::vector<std::int64_t>& known(const std::vector<std::int64_t>& weights,
                                       const SegmentationLayers& layers, const std::string& what) {
  if (weights.size() == layers.names.size()) return weights;
  if (weights.empty()) {
    refuse(what, "splits by a profile, and there is none; record one first, or use \"uniform\"");
  }
  refuse(what, "needs a weight for each of the " + std::to_string(layers.names.size()) +
                   " layers, found " + std::to_string(weights.size()));
}

}  // namespace

Segmentation parse_segmentation(std::string_view text) {
  const std::string_view word = trimmed(text);
  if (word == "uniform") return {};
  if (word == "memory") return {SegmentationMethod::kMemory, {}, {}};
  if (word == "time") return {SegmentationMethod::kTime, {}, {}};
  if (word.starts_with(kLayerPrefix)) {
    const std::string_view name = trimmed(word.substr(kLayerPrefix.size()));
    if (name.empty()) refuse(text, "names no layer; write it behind the colon");
    return {SegmentationMethod::kLayerName, std::string(name), {}};
  }
  if (!word.empty() && std::string_view("[-+0123456789").find(word[0]) != std::string_view::npos) {
    return {SegmentationMethod::kBounds, {}, read_bounds(text)};
  }
  refuse(text, "is no way to split a model; " + std::string(kAccepted));
}

std::string to_string(const Segmentation& segmentation) {
  switch (segmentation.method) {
    case SegmentationMethod::kUniform:
      return "uniform";
    case SegmentationMethod::kLayerName:
      return std::string(kLayerPrefix) + segmentation.layer;
    case SegmentationMethod::kMemory:
      return "memory";
    case SegmentationMethod::kTime:
      return "time";
    case SegmentationMethod::kBounds:
      break;
  }
  std::string text;
  for (const int bound : segmentation.bounds) {
    text += (text.empty() ? "" : ",") + std::to_string(bound);
  }
  return text;
}

std::vector<int> segment(const Segmentation& segmentation, const SegmentationLayers& layers,
                         int parts) {
  switch (segmentation.method) {
    case SegmentationMethod::kUniform:
      return segment_uniform(static_cast<int>(layers.names.size()), parts);
    case SegmentationMethod::kLayerName:
      return segment_by_name(layers.names, segmentation.layer, parts);
    case SegmentationMethod::kMemory:
      return segment_by_weight(known(layers.memory, layers, "memory"), parts);
    case SegmentationMethod::kTime:
      return segment_by_weight(known(layers.time, layers, "time"), parts);
    case SegmentationMethod::kBounds:
      break;
  }
  check_bounds(segmentation.bounds, static_cast<int>(layers.names.size()), parts);
  return segmentation.bounds;
}

}  // namespace spillway
