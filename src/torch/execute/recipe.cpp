#include "torch/execute/recipe.hpp"

#include <algorithm>

#include "torch/record/pass.hpp"

namespace spillway {
namespace {

bool is_alive(const Value& value) {
  return value.unchanged() && !value.owned_elsewhere && value.pin.lock();
}

bool may_repeat(const Call& call) { return call.no_replay.empty() && call.ended; }

std::string about(const Call& call, const std::string& problem) {
  return problem + " (" + call.traits->name + ")";
}

}  // namespace

bool is_available(const Value& value) {
  if (value.owned_elsewhere && value.maker >= 0 && !value.copied) {
    return value.recomputed || value.in_replay;
  }
  if (value.recomputed || value.in_replay || value.root_count > 0 || value.fixed || value.maker < 0)
    return true;
  if (value.overwritten) return false;  // Its buffer has what was written since.
  const auto buffer = value.buffer.lock();
  return is_stored(buffer) || (is_recomputed(buffer) && !buffer->verify && buffer->on_device());
}

Recipe find_recipe(const RecipeBook& book, ValueId target, const FreedWeights& freed) {
  Recipe recipe;
  std::unordered_map<ValueId, bool> seen{{target, true}};
  const auto note_freed = [&](CallId call) {
    const auto found = std::ranges::find(recipe.freed_reads, call);
    if (found == recipe.freed_reads.end()) recipe.freed_reads.push_back(call);
  };
  std::vector<ValueId> open;
  const auto add = [&](ValueId each) {
    if (seen.emplace(each, true).second) open.push_back(each);
  };
  const auto repeat = [&](ValueId each) {
    const Value& value = book.value(each);
    if (value.maker < 0) {
      recipe.problem = "its producer is unknown";
      return;
    }
    const Call& maker = book.call(value.maker);
    recipe.signature += combined(1, maker.signature);  // In any order.
    if (freed.contains(maker.signature)) note_freed(value.maker);
    if (!maker.no_replay.empty()) {
      recipe.problem = about(maker, maker.no_replay);
    } else if (!maker.ended) {
      recipe.problem = about(maker, "its producer has not finished");
    }
    for (const TensorArgument& argument : maker.tensors) add(argument.value);
  };

  const Value& wanted = book.value(target);
  recipe.signature = combined(2, wanted.signature);
  if (wanted.maker >= 0 && book.call(wanted.maker).traits->uninitialised) {
    recipe.problem = about(book.call(wanted.maker), "it was not written by an operator");
  } else {
    repeat(target);
  }
  while (recipe && !open.empty()) {
    const ValueId each = open.back();
    open.pop_back();
    const Value& value = book.value(each);
    if (value.root_count > 0 && !value.owned_elsewhere) {
      recipe.roots.push_back(each);
      continue;
    }
    if (const auto buffer = value.buffer.lock()) {
      if (is_stored(buffer) && value.unchanged() && !value.owned_elsewhere) {
        recipe.roots.push_back(each);
        continue;
      }
      if ((buffer->verify || buffer->action == ActionKind::kRecompute) && !buffer->awaited) {
        // It is recomputed itself, from roots that it already holds.
        for (const ValueId root : buffer->roots) {
          if (seen.emplace(root, true).second) recipe.roots.push_back(root);
        }
        std::ranges::for_each(buffer->freed_reads, note_freed);
        recipe.unverified = recipe.unverified || buffer->verify;
        continue;
      }
    }
    if (value.fixed || value.maker < 0) {
      if (is_alive(value)) {
        recipe.roots.push_back(each);
      } else {
        recipe.problem = "an input of its recipe is gone or was changed";
      }
    } else if ((value.kept || !may_repeat(book.call(value.maker))) && is_alive(value)) {
      recipe.roots.push_back(each);  // It cannot be recomputed, but held.
    } else {
      repeat(each);
    }
  }
  return recipe;
}

}  // namespace spillway
