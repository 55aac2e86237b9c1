#include "spillway/schedule/segment.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "spillway/core/error.hpp"
#include "spillway/core/nearest.hpp"

namespace spillway {
namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw InvalidArgument("segmentation", problem);
}

void require_enough(int layers, int parts) {
  if (parts < 1) refuse("at least one part is needed, found " + std::to_string(parts));
  if (layers < parts) {
    refuse("each part needs a layer: " + std::to_string(parts) + " parts, found " +
           std::to_string(layers) + " layers; take fewer stages or chunks");
  }
}

std::int64_t sum_of(const std::vector<std::int64_t>& weights) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] < 0) {
      refuse("weights must not be negative, found " + std::to_string(weights[i]) + " of layer " +
             std::to_string(i));
    }
    if (weights[i] > std::numeric_limits<std::int64_t>::max() - sum) {
      refuse("the sum of the weights up to layer " + std::to_string(i) +
             " is too large to count; give them in a larger unit");
    }
    sum += weights[i];
  }
  return sum;
}

/// For each layer, how few parts the layers from it to the end take if none weighs more than
/// `most`, which no single layer does.
std::vector<int> parts_needed(const std::vector<std::int64_t>& weights, std::int64_t most) {
  std::vector<int> needed(weights.size() + 1, 0);
  std::int64_t weight = 0;
  std::size_t end = weights.size();
  for (std::size_t i = weights.size(); i-- > 0;) {
    weight += weights[i];
    // The first part from i on reaches as far as it may.
    while (weight > most) weight -= weights[--end];
    needed[i] = needed[end] + 1;
  }
  return needed;
}

}  // namespace

std::vector<int> segment_uniform(int layers, int parts) {
  require_enough(layers, parts);
  const int size = layers / parts;
  const int first_larger = parts - layers % parts;
  std::vector<int> bounds{0};
  for (int part = 0; part < parts; ++part) {
    bounds.push_back(bounds.back() + size + (part >= first_larger ? 1 : 0));
  }
  return bounds;
}

std::vector<int> segment_by_name(const std::vector<std::string>& names, std::string_view name,
                                 int parts) {
  require_enough(static_cast<int>(names.size()), parts);
  const auto found = static_cast<int>(std::count(names.begin(), names.end(), name));
  if (found == 0) {
    const std::set<std::string> known(names.begin(), names.end());
    refuse("no layer is called \"" + std::string(name) + "\"; " +
           suggestion(name, {known.begin(), known.end()}));
  }
  if (found % parts != 0) {
    refuse("the layers called \"" + std::string(name) + "\" must be a multiple of the " +
           std::to_string(parts) + " parts, found " + std::to_string(found) +
           " of them: " + std::to_string(found / parts) + " each leave " +
           std::to_string(found % parts) + " over; change the model's depth, or give bounds");
  }
  std::vector<int> bounds{0};
  int counted = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != name) continue;
    if (++counted % (found / parts) == 0) bounds.push_back(static_cast<int>(i) + 1);
  }
  bounds.back() = static_cast<int>(names.size());
  return bounds;
}

std::vector<int> segment_by_weight(const std::vector<std::int64_t>& weights, int parts) {
  require_enough(static_cast<int>(weights.size()), parts);
  std::int64_t high = sum_of(weights);
  std::int64_t low = *std::max_element(weights.begin(), weights.end());
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (parts_needed(weights, middle).front() <= parts) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const std::vector<int> needed = parts_needed(weights, low);
  std::vector<int> bounds{0};
  for (int left = parts - 1; left > 0; --left) {
    int bound = bounds.back() + 1;
    while (needed[static_cast<std::size_t>(bound)] > left) ++bound;
    bounds.push_back(bound);
  }
  bounds.push_back(static_cast<int>(weights.size()));
  return bounds;
}

void check_bounds(const std::vector<int>& bounds, int layers, int parts) {
  require_enough(layers, parts);
  if (bounds.size() != static_cast<std::size_t>(parts) + 1) {
    refuse(std::to_string(parts) + " parts need " + std::to_string(parts + 1) +
           " bounds, from 0 to the number of layers, found " + std::to_string(bounds.size()));
  }
  if (bounds.front() != 0) {
    refuse("the first bound must be 0, found " + std::to_string(bounds.front()));
  }
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] <= bounds[i - 1]) {
      refuse("bounds must grow, found " + std::to_string(bounds[i]) + " after " +
             std::to_string(bounds[i - 1]) + "; no part may be empty");
    }
  }
  if (bounds.back() != layers) {
    refuse("the last bound must be the number of layers, " + std::to_string(layers) + ", found " +
           std::to_string(bounds.back()));
  }
}

}  // namespace spillway
