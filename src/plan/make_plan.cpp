#include <algorithm>
#include <cmath>
#include <map>

#include "plan/match.hpp"
#include "plan/recompute.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {
namespace {

/// By the call that made it; what nobody is known to have made comes first, as it was there first.
std::vector<const BufferProfile*> in_order_of_production(
    std::vector<const BufferProfile*> buffers) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const BufferProfile* a, const BufferProfile* b) {
                     return a->producer.call < b->producer.call;
                   });
  return buffers;
}

Bytes share(Bytes total, double fraction) {
  if (fraction >= 1) return total;
  const auto bytes = std::ceil(static_cast<long double>(total.count()) * fraction);
  return Bytes(static_cast<std::uint64_t>(bytes));
}

/// The decisions of one chunk.
class ChunkPlanner {
 public:
  ChunkPlanner(const ChunkProfile& chunk, const Profile& profile, const Rules& rules)
      : chunk_(chunk), profile_(profile), rules_(rules), matcher_(chunk, profile.layers) {
    plan_.chunk = chunk.chunk;
    plan_.sites = sites_of(chunk);
    for (const BufferProfile& buffer : chunk.buffers) start(buffer);
  }

  /// Adds to `matched` how many buffers and anchors each rule decided.
  void run(std::vector<std::size_t>& matched) {
    for (std::size_t i = 0; i < rules_.rules.size(); ++i) matched[i] += apply(i);
    const RecomputeSummary summary = plan_recompute(chunk_, profile_, rules_, matcher_, plan_);
    for (std::size_t i = 0; i < matched.size(); ++i) matched[i] += summary.anchors_by_rule[i];
    passages_ = summary.passages;
  }

  [[nodiscard]] ChunkPlan take() && { return std::move(plan_); }
  /// As RecomputeSummary says.
  [[nodiscard]] std::size_t passages() const { return passages_; }

 private:
  void start(const BufferProfile& buffer) {
    Decision decision;
    decision.buffer = buffer.id;
    decision.position = buffer.position;
    decision.fixed = buffer.fixed;
    decision.bytes = buffer.size;
    decision.reason = "nothing matched: keep";
    bool open = false;
    if (buffer.fixed != FixedReason::kNone) {
      decision.reason = "fixed: " + std::string(to_string(buffer.fixed));
    } else if (rules_.limits.min_size && buffer.size < *rules_.limits.min_size) {
      decision.reason = "smaller than [limits] min_size: keep";
    } else {
      open = true;
    }
    plan_.decisions.push_back(std::move(decision));
    open_.push_back(open);
  }

  /// Undecided buffers for which the rule's conditions hold, in order of production.
  [[nodiscard]] std::vector<const BufferProfile*> candidates(const Rule& rule) const {
    std::vector<const BufferProfile*> found;
    for (const BufferProfile& buffer : chunk_.buffers) {
      const bool open = open_[static_cast<std::size_t>(buffer.id)];
      if (open && matcher_.matches(rule, buffer)) found.push_back(&buffer);
    }
    return in_order_of_production(std::move(found));
  }

  std::size_t apply(std::size_t index) {
    const Rule& rule = rules_.rules[index];
    const std::string name = name_of(rule, index);
    const std::vector<const BufferProfile*> found = candidates(rule);
    auto next = found.begin();
    for (Bytes skipped; next != found.end() && skipped < rule.skip; ++next) {
      skipped += (*next)->size;
      decision_of(**next).reason = "skipped by " + name + ": keep";
    }
    Bytes rest;
    for (auto each = next; each != found.end(); ++each) rest += (*each)->size;
    const Bytes wanted = share(rest, rule.fraction);
    std::size_t count = 0;
    for (Bytes taken; next != found.end() && (rule.fraction >= 1 || taken < wanted); ++next) {
      taken += (*next)->size;
      decide(decision_of(**next), rule, name);
      ++count;
    }
    for (; next != found.end(); ++next) {
      decision_of(**next).reason = "beyond the fraction of " + name + ": keep";
    }
    return count;
  }

  [[nodiscard]] Decision& decision_of(const BufferProfile& buffer) {
    return plan_.decisions[static_cast<std::size_t>(buffer.id)];
  }

  void decide(Decision& decision, const Rule& rule, const std::string& name) {
    decision.action = rule.action;
    decision.second = rule.second == ActionKind::kRecompute ? ActionKind::kKeep : rule.second;
    decision.reason = name;
    open_[static_cast<std::size_t>(decision.buffer)] = false;
  }

  const ChunkProfile& chunk_;
  const Profile& profile_;
  const Rules& rules_;
  Matcher matcher_;
  ChunkPlan plan_;
  std::size_t passages_ = 0;
  std::vector<bool> open_;  // By buffer: whether rules may still decide.
};

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
    ChunkPlanner planner(chunk, profile, translated);
    planner.run(matched);
    passages += planner.passages();
    plan.chunks.push_back(std::move(planner).take());
  }
  if (translated.in_flight_modules) {
    plan.limits.in_flight = bytes_of_modules(profile, translated, plan) *
                            static_cast<std::uint64_t>(*translated.in_flight_modules);
  }
  add_notes(translated, matched, plan);
  add_recompute_notes(passages, plan);
  return plan;
}

}  // namespace spillway
