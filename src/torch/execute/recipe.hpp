/// What a value can be recomputed from; internal. Under the session's lock.
#pragma once

#include <string>
#include <vector>

#include "torch/graph/recipe_book.hpp"
#include "torch/record/freed_weights.hpp"

namespace spillway {

struct Recipe {
  std::vector<ValueId> roots;  // Each once.
  // Calls between the roots and it that read weights which their owners free; each once.
  std::vector<CallId> freed_reads;
  Signature signature = 0;  // Of the value, and of the calls between the roots and it.
  bool unverified = false;  // It goes through a buffer that is verified in this step.
  std::string problem;      // Why there is no recipe; empty if there is one.

  [[nodiscard]] explicit operator bool() const noexcept { return problem.empty(); }
};

/// Follows the producers of `target` back to values that are available: buffers that are kept or
/// offloaded, parameters, values from outside that still live. Does not hold them yet.
[[nodiscard]] Recipe find_recipe(const RecipeBook& book, ValueId target,
                                 const FreedWeights& freed = {});

/// Whether a replay may read the value without recomputing it. What came from outside is checked
/// when it is read.
[[nodiscard]] bool is_available(const Value& value);

/// The calls to repeat to recompute `target`, in order. Stops at values for which `is_available` is
/// true.
template <typename IsAvailable>
[[nodiscard]] std::vector<CallId> calls_to_repeat(const RecipeBook& book, ValueId target,
                                                  IsAvailable&& is_available);

}  // namespace spillway

#include <algorithm>

namespace spillway {

template <typename IsAvailable>
std::vector<CallId> calls_to_repeat(const RecipeBook& book, ValueId target,
                                    IsAvailable&& is_available) {
  std::vector<CallId> found;
  std::vector<ValueId> open{target};
  std::unordered_map<CallId, bool> seen;
  while (!open.empty()) {
    const ValueId each = open.back();
    open.pop_back();
    if (each != target && is_available(each)) continue;
    const CallId maker = book.value(each).maker;
    if (maker < 0 || !seen.emplace(maker, true).second) continue;
    found.push_back(maker);
    for (const TensorArgument& argument : book.call(maker).tensors) open.push_back(argument.value);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace spillway
