#include "torch/execute/recipe_trust.hpp"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

// What shares a signature is trusted together or not at all.
constexpr const char* kShared = "another buffer with its signature had other bits";

}  // namespace

RecipeTrust::Answer RecipeTrust::ask(Signature recipe) {
  const auto [entry, added] = recipes_.try_emplace(recipe, Trust::kUnread);
  return {entry->second, added};
}

void RecipeTrust::add(const Key& key, Signature recipe, std::vector<at::Tensor> differ,
                      const std::set<Key>& made_from) {
  compared_[key].insert(recipe);
  for (at::Tensor& each : differ) verification_.add(key, std::move(each), made_from);
}

void RecipeTrust::plan_replaced() {
  compared_.clear();
  verification_ = Verification();
}

bool RecipeTrust::is_mismatched(Signature recipe) const {
  const auto found = recipes_.find(recipe);
  return found != recipes_.end() && found->second == Trust::kMismatched;
}

RecipeTrust::Result RecipeTrust::note(const std::vector<Verification::Failure>& failures,
                                      const Layouts& layouts) {
  const std::map<Key, std::set<Signature>> compared = std::exchange(compared_, {});
  Result result;
  std::map<Key, std::string>& demoted = result.demoted;
  std::set<Key> failed;
  for (const Verification::Failure& failure : failures) {
    failed.insert(failure.key);
    if (failure.own) {
      demoted.emplace(failure.key, failure.reason);
    } else {
      result.again = true;
    }
  }
  for (const auto& [key, recipes] : compared) {
    if (failed.contains(key)) continue;
    for (const Signature recipe : recipes) {
      if (recipes_[recipe] == Trust::kUnread) recipes_[recipe] = Trust::kVerified;
    }
  }
  for (const auto& [key, recipes] : compared) {
    if (!demoted.contains(key)) continue;
    for (const Signature recipe : recipes) recipes_[recipe] = Trust::kMismatched;
  }
  for (const auto& [key, recipes] : compared) {
    const auto mismatched = [this](Signature recipe) { return is_mismatched(recipe); };
    if (std::ranges::any_of(recipes, mismatched)) demoted.emplace(key, kShared);
  }
  for (const auto& [number, layout] : layouts) {
    std::set<int> shared;
    for (const auto& [signature, sites] : layout->sites_of) {
      const auto is_demoted = [&, chunk = number](std::size_t site) {
        return demoted.contains({chunk, layout->sites[site].buffer});
      };
      if (std::ranges::none_of(sites, is_demoted)) continue;
      for (const std::size_t site : sites) shared.insert(layout->sites[site].buffer);
    }
    for (const int buffer : shared) demoted.emplace(Key{number, buffer}, kShared);
  }
  return result;
}

}  // namespace spillway
