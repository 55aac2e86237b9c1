#include "plan/recompute/weigh.hpp"

#include <algorithm>

namespace spillway {
namespace {

/// The layers that are recomputed as one, by their first; -1 outside of the layers.
int region_of(int layer, int layers, const Rules& rules) {
  for (const Rule& rule : rules.rules) {
    const int group = rule.group_inputs ? group_of(rule, layer, layers) : -1;
    if (group >= 0) return group;
  }
  return layer;
}

bool names_the_maker(const Rule& rule) {
  return !rule.producer.empty() || !rule.made_in.empty() || !rule.made_in_module.empty();
}

}  // namespace

Weights::Weights(const ChunkProfile& chunk, const Profile& profile, const Rules& rules,
                 const Matcher& matcher)
    : chunk_(chunk),
      profile_(profile),
      rules_(rules),
      matcher_(matcher),
      obstacles_(chunk, rules.recompute_collectives),
      weighed_(chunk.values.size()) {
  regions_.reserve(chunk.operators.size());
  for (const OperatorProfile& call : chunk.operators) {
    regions_.push_back(region_of(call.layer, profile.layers, rules));
  }
  for (int call = 0; call < static_cast<int>(chunk.operators.size()); ++call) {
    weigh(call, obstacles_.of_call(call).empty());
  }
}

bool Weights::crosses(int value, int reader) const {
  const int call = chunk_.values[static_cast<std::size_t>(value)].call;
  return regions_[static_cast<std::size_t>(call)] != regions_[static_cast<std::size_t>(reader)];
}

void Weights::weigh(int call, bool possible) {
  const std::uint64_t inputs = possible ? cost_of_inputs(call) : 0;
  for (const int id : chunk_.operators[static_cast<std::size_t>(call)].makes) {
    const ValueProfile& value = chunk_.values[static_cast<std::size_t>(id)];
    if (!is_unsaved(value)) continue;
    Weighed weighed = possible ? preference_for(value) : Weighed{Preference::kImpossible, 0, 0, 0};
    weighed.inputs = inputs;
    switch (weighed.preference) {
      case Preference::kReplay:
        weighed.cost = inputs;
        break;
      case Preference::kByBytes:
        weighed.cost = std::min(value.size.count(), inputs);
        break;
      case Preference::kNamed:
      case Preference::kSlow:
      case Preference::kImpossible:
        weighed.cost = value.size.count();
        break;
    }
    weighed_[static_cast<std::size_t>(id)] = weighed;
  }
}

Weighed Weights::preference_for(const ValueProfile& value) const {
  // Keeping it would take a copy.
  if (value.overwritten) return {Preference::kReplay, 0, 0, 0};
  const int layer = chunk_.operators[static_cast<std::size_t>(value.call)].layer;
  for (std::size_t i = 0; i < rules_.rules.size(); ++i) {
    const Rule& rule = rules_.rules[i];
    const bool recompute = rule.action.kind == ActionKind::kRecompute;
    if (!recompute && !names_the_maker(rule)) continue;
    if (!matcher_.matches(rule, value, layer)) continue;
    return {recompute ? Preference::kReplay : Preference::kNamed, i, 0, 0};
  }
  return {is_slow(value) ? Preference::kSlow : Preference::kByBytes, 0, 0, 0};
}

bool Weights::is_slow(const ValueProfile& value) const {
  if (profile_.link.back <= 0) return false;
  const double fetch_ns = static_cast<double>(value.size.count()) / profile_.link.back * 1e9;
  const OperatorProfile& made_by = chunk_.operators[static_cast<std::size_t>(value.call)];
  return static_cast<double>(made_by.device_ns) > fetch_ns;
}

std::uint64_t Weights::cost_of_inputs(int call) const {
  std::vector<int> reads = chunk_.operators[static_cast<std::size_t>(call)].reads;
  std::sort(reads.begin(), reads.end());
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  std::uint64_t sum = 0;
  for (const int id : reads) {
    const ValueProfile& value = chunk_.values[static_cast<std::size_t>(id)];
    if (!is_unsaved(value)) continue;
    sum = saturating_sum(sum, crosses(id, call) ? value.size.count() : of(id).cost);
  }
  return sum;
}

}  // namespace spillway
