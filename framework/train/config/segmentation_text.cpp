#include "train/config/segmentation_text.hpp"

#include <charconv>

#include "spillway/core/error.hpp"

namespace spillway::app {

std::vector<int> parse_bounds(const std::string& text) {
  if (text == "uniform" || text == "memory" || text == "time") return {};
  if (text.starts_with("layer:") && text.size() > 6) return {};
  const auto refuse = [&](const char* why) {
    throw InvalidArgument(
        "segmentation", "\"" + text + "\" " + why +
                            "; write uniform, memory, time, layer:NAME or the first layer of each "
                            "stage and the end, such as 0,3,6,8");
  };
  std::vector<int> bounds;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    while (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, bounds.emplace_back());
    if (error != std::errc()) refuse("is no way to split layers");
    at = next;
    while (at != end && *at == ' ') ++at;
    if (at == end) break;
    if (*at++ != ',') refuse("is no way to split layers");
  }
  if (bounds.size() < 2 || bounds.front() != 0) refuse("are no bounds: they begin with 0");
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] <= bounds[i - 1]) refuse("are no bounds: each is larger than the one before");
  }
  return bounds;
}

void check_segmentation(const std::string& text) { (void)parse_bounds(text); }

}  // namespace spillway::app
