#include <algorithm>
#include <map>

#include "plan/policy/decide.hpp"
#include "plan/policy/match.hpp"
#include "plan/recompute/recompute.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {
namespace {

/// The bytes that the offloaded modules of one layer have, the largest of each kind taken together.
Bytes bytes_of_modules(const Profile& profile, const Rules& rules, const Plan& plan) {
  std::vector<std::string> words;
  for (const Rule& rule : rules.rules) {
    if (rule.action.kind != ActionKind::kOffload) continue;
    words.insert(words.end(), rule.module.begin(), rule.module.end());
  }
  std::map<std::size_t, Bytes> largest;
  for (std::size_t i = 0; i < profile.chunks.size(); ++i) {
    std::map<std::pair<std::size_t, int>, Bytes> by_module_and_layer;
    for (const BufferProfile& buffer : profile.chunks[i].buffers) {
      const auto id = static_cast<std::size_t>(buffer.id);
      if (plan.chunks[i].decisions[id].action.kind != ActionKind::kOffload) continue;
      const std::size_t module = Matcher::first_module(words, buffer);
      Bytes& bytes = by_module_and_layer[{module, buffer.layer}];
      bytes += buffer.size;
      largest[module] = std::max(largest[module], bytes);
    }
  }
  Bytes total;
  for (const auto& [module, bytes] : largest) total += bytes;
  return total;
}

void add_notes(const Rules& rules, const std::vector<std::size_t>& matched, Plan& plan) {
  for (std::size_t i = 0; i < matched.size(); ++i) {
    if (matched[i] == 0) plan.notes.push_back(name_of(rules.rules[i], i) + " decided no buffer");
  }
  Bytes offloaded;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Decision& decision : chunk.decisions) {
      if (decision.action.kind == ActionKind::kOffload) offloaded += decision.bytes;
    }
    for (const Anchor& anchor : chunk.anchors) {
      if (anchor.action.kind == ActionKind::kOffload) offloaded += anchor.bytes;
    }
  }
  if (plan.limits.host && offloaded > *plan.limits.host) {
    plan.notes.push_back("one pass of each chunk offloads " + to_string(offloaded) +
                         ", more than [limits] host = " + to_string(*plan.limits.host) +
                         ": what finds no room is kept");
  }
}

void add_recompute_notes(std::size_t passages, Plan& plan) {
  std::size_t anchors = 0;
  Bytes bytes;
  for (const ChunkPlan& chunk : plan.chunks) {
    anchors += chunk.anchors.size();
    for (const Anchor& anchor : chunk.anchors) bytes += anchor.bytes;
  }
  if (anchors > 0) {
    plan.notes.push_back(
        std::to_string(anchors) +
        (anchors == 1 ? " value is held as an anchor (" : " values are held as anchors (") +
        to_string(bytes) + "), because replays start there");
  }
  if (passages > 0) {
    plan.notes.push_back(
        std::to_string(passages) +
        (passages == 1 ? " recomputed buffer enters" : " recomputed buffers enter") +
        " a layer from another one, so that replays run through several layers; a rule before it "
        "with group_inputs = 1 and action = \"keep\" would hold " +
        (passages == 1 ? "it" : "them"));
  }
}

}  // namespace

Plan make_plan(const Profile& profile, const Rules& rules) {
  const Rules translated = translate(rules, shape_of(profile));
  Plan plan;
  plan.structure = structure_digest(profile);
  plan.limits = translated.limits;
  plan.recompute_collectives = translated.recompute_collectives;
  plan.notes = translated.notes;
  std::vector<std::size_t> matched(translated.rules.size());
  std::size_t passages = 0;
  for (const ChunkProfile& chunk : profile.chunks) {
    const Matcher matcher(chunk, profile.layers);
    DecidedChunk decided = decide(chunk, translated, matcher);
    const RecomputeSummary summary =
        plan_recompute(Weights(chunk, profile, translated, matcher), decided.plan);
    for (std::size_t i = 0; i < matched.size(); ++i) {
      matched[i] += decided.matched[i] + summary.anchors_by_rule[i];
    }
    passages += summary.passages;
    plan.chunks.push_back(std::move(decided.plan));
  }
  if (translated.offload_window_modules) {
    plan.limits.offload_window = bytes_of_modules(profile, translated, plan) *
                                 static_cast<std::uint64_t>(*translated.offload_window_modules);
  }
  add_notes(translated, matched, plan);
  add_recompute_notes(passages, plan);
  return plan;
}

}  // namespace spillway
