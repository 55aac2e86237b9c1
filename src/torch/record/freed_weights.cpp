#include "torch/record/freed_weights.hpp"

#include <algorithm>

namespace spillway {
namespace {

bool is_numeral(std::string_view part) {
  return !part.empty() &&
         std::ranges::all_of(part, [](char each) { return '0' <= each && each <= '9'; });
}

/// Takes the part before the next dot off the front.
std::string_view take_part(std::string_view& scope) {
  const std::size_t dot = std::min(scope.find('.'), scope.size());
  const std::string_view part = scope.substr(0, dot);
  scope.remove_prefix(std::min(dot + 1, scope.size()));
  return part;
}

}  // namespace

bool in_one_layer(std::string_view a, std::string_view b) {
  bool numbered = false;
  while (!a.empty() && !b.empty()) {
    const std::string_view of_a = take_part(a);
    const std::string_view of_b = take_part(b);
    if (of_a != of_b) return numbered && !(is_numeral(of_a) && is_numeral(of_b));
    numbered = numbered || is_numeral(of_a);
  }
  return numbered;
}

void FreedWeights::look(const RecipeBook& book, int pass, At at,
                        const std::vector<CallLocation>& locations, SessionMutex& mutex) {
  const auto is_freed = [&](const TensorArgument& argument) {
    if (argument.weight == nullptr) return false;
    WeightView::Weight weight = argument.weight->lock();
    if (!weight) return at == At::kBackwardBegins;
    const bool freed = !argument.weight->has_memory(weight);
    mutex.free_outside(c10::intrusive_ptr<c10::TensorImpl>::reclaim(weight.release()));
    return freed;
  };
  const auto of_pass = std::ranges::equal_range(book.weight_readers(), pass, {},
                                                [&](CallId id) { return book.call(id).pass; });
  for (const CallId id : of_pass) {
    const Call& call = book.call(id);
    const bool recorded = !locations.empty();
    if (recorded && !locations[static_cast<std::size_t>(id)].in_forward) continue;
    if (!std::ranges::any_of(call.tensors, is_freed) && !contains(call.signature)) continue;
    std::optional<std::string>& known = scopes_.try_emplace(call.signature).first->second;
    if (!recorded) continue;
    const std::string& scope = locations[static_cast<std::size_t>(id)].scope;
    if (!known) {
      known = scope;
    } else if (!in_one_layer(*known, scope)) {
      known = std::string();
    }
  }
}

bool FreedWeights::are_there(Signature call, const std::vector<std::string>& scopes) const {
  const auto found = scopes_.find(call);
  if (found == scopes_.end() || !found->second || scopes.empty()) return false;
  return std::ranges::all_of(
      scopes, [&](const std::string& each) { return in_one_layer(*found->second, each); });
}

}  // namespace spillway
