/// From what a value can be made again; internal. Under the session's lock.
#pragma once

#include <string>
#include <vector>

#include "torch/graph/recipe_book.hpp"

namespace spillway {

struct Recipe {
  std::vector<ValueId> roots;  // Each once.
  std::string problem;         // Why there is no recipe; empty if there is one.

  [[nodiscard]] explicit operator bool() const noexcept { return problem.empty(); }
};

/// Follows the makers of `target` back to what is there: buffers that are kept or offloaded,
/// parameters, what came from outside and still lives. Holds nothing yet.
[[nodiscard]] Recipe find_recipe(const RecipeBook& book, ValueId target);

/// The calls to repeat to have `target` again, in order. Stops at what `is_there` says is there.
template <typename IsThere>
[[nodiscard]] std::vector<CallId> calls_to_repeat(const RecipeBook& book, ValueId target,
                                                  IsThere&& is_there);

}  // namespace spillway

#include <algorithm>

namespace spillway {

template <typename IsThere>
std::vector<CallId> calls_to_repeat(const RecipeBook& book, ValueId target, IsThere&& is_there) {
  std::vector<CallId> found;
  std::vector<ValueId> open{target};
  std::unordered_map<CallId, bool> seen;
  while (!open.empty()) {
    const ValueId each = open.back();
    open.pop_back();
    if (each != target && is_there(each)) continue;
    const CallId maker = book.value(each).maker;
    if (maker < 0 || !seen.emplace(maker, true).second) continue;
    found.push_back(maker);
    for (const TensorArgument& argument : book.call(maker).tensors) open.push_back(argument.value);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace spillway
