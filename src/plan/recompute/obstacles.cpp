#include "plan/recompute/obstacles.hpp"

#include <algorithm>

namespace spillway {

std::string Obstacles::of_call(int call) const {
  const OperatorProfile& made_by = chunk_.operators[static_cast<std::size_t>(call)];
  if (stops(made_by.no_replay)) return made_by.name + " is not repeated: " + made_by.no_replay;
  const bool gone = std::any_of(made_by.reads.begin(), made_by.reads.end(), [this](int id) {
    const ValueProfile& value = chunk_.values[static_cast<std::size_t>(id)];
    return value.call < 0 && value.buffer < 0 && !value.persistent;
  });
  return gone ? made_by.name + " reads what came from outside and is gone" : "";
}

std::string Obstacles::of_buffer(const BufferProfile& buffer) const {
  const RecipeProfile& recipe = buffer.recipe;
  if (!recipe.usable && recipe.reason.empty()) return "no recipe";
  if (!recipe.usable && stops(recipe.reason)) return recipe.reason;
  if (buffer.value < 0) return "the operator that made it is unknown";
  const int call = chunk_.values[static_cast<std::size_t>(buffer.value)].call;
  return call < 0 ? "it came from outside of the pass" : of_call(call);
}

bool Obstacles::stops(const std::string& reason) const {
  return !reason.empty() && !(collectives_ && reason == kCollective);
}

}  // namespace spillway
