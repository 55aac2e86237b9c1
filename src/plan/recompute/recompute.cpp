#include "plan/recompute/recompute.hpp"

#include <algorithm>

#include "plan/recompute/need_order.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// In a list of anchors by value: not yet in the plan's list.
constexpr int kWanted = -2;

class RecomputePlanner {
 public:
  RecomputePlanner(const Weights& weights, ChunkPlan& plan, const std::vector<Request>& requests)
      : weights_(weights),
        chunk_(weights.chunk()),
        rules_(weights.rules()),
        plan_(plan),
        requests_(requests),
        replayed_(chunk_.operators.size()),
        readers_(chunk_.values.size()),
        anchor_of_(chunk_.values.size(), -1) {
    summary_.anchors_by_rule.resize(rules_.rules.size());
  }

  [[nodiscard]] RecomputeSummary run() {
    plan_.calls_before_first_save = chunk_.calls_before_first_save;
    demote_the_impossible();
    if (std::find(replayed_.begin(), replayed_.end(), true) != replayed_.end()) {
      walk();
      add_anchors();
      add_operators();
    }
    plan_.need_order = need_order(chunk_, plan_, anchor_of_);
    summary_.passages = count_passages();
    return std::move(summary_);
  }

 private:
  [[nodiscard]] const ValueProfile& value(int id) const { return chunk_.values[to_index(id)]; }
  [[nodiscard]] const OperatorProfile& call_at(int call) const {
    return chunk_.operators[to_index(call)];
  }

  void demote_the_impossible() {
    for (Decision& decision : plan_.decisions) {
      if (decision.action.kind != ActionKind::kRecompute) continue;
      const BufferProfile& buffer = chunk_.buffers[to_index(decision.buffer)];
      const std::string why = weights_.obstacles().of_buffer(buffer);
      if (why.empty()) {
        replayed_[to_index(value(buffer.value).call)] = true;
        continue;
      }
      decision.action = {decision.fallback, false};
      decision.fallback = ActionKind::kKeep;
      decision.reason += ", but not recomputable: " + why + ": " + to_string(decision.action);
    }
  }

  /// Which replayed calls read a value.
  struct Readers {
    int first = -1;
    int first_from_outside = -1;  // Of those in other regions.
    std::uint64_t made = 0;       // Bytes that they make of it and others.
  };

  /// Bytes of what a replayed call makes that is wanted.
  [[nodiscard]] std::uint64_t wanted_bytes(int call) const {
    std::uint64_t bytes = 0;
    for (const int id : call_at(call).makes) {
      const int buffer = value(id).buffer;
      const bool wanted =
          buffer < 0 ? readers_[to_index(id)].first >= 0
                     : plan_.decisions[to_index(buffer)].action.kind == ActionKind::kRecompute;
      if (wanted) bytes = saturating_sum(bytes, value(id).size.count());
    }
    return bytes;
  }

  [[nodiscard]] bool is_wanted_inside(int id) const {
    const Readers& readers = readers_[to_index(id)];
    return is_unsaved(value(id)) && readers.first >= 0 && readers.first_from_outside < 0;
  }

  [[nodiscard]] Request request(int id) const {
    return requests_.empty() ? Request::kNone : requests_[to_index(id)];
  }

  /// Keeping a slow result does not pay where no more bytes than its own are computed from it.
  [[nodiscard]] bool is_worth_a_replay(int id) const {
    const Weighed& weighed = weights_.of(id);
    const std::uint64_t size = value(id).size.count();
    switch (weighed.preference) {
      case Preference::kReplay:
        return true;
      case Preference::kSlow:
      case Preference::kByBytes:
        if (request(id) != Request::kNone) return request(id) == Request::kReplay;
        return weighed.inputs < size &&
               (weighed.preference == Preference::kByBytes || readers_[to_index(id)].made <= size);
      case Preference::kNamed:
      case Preference::kImpossible:
        return false;
    }
    return false;
  }

  /// From the last call to the first, so that all readers of a call's outputs are known.
  void walk() {
    for (int call = static_cast<int>(chunk_.operators.size()) - 1; call >= 0; --call) {
      const std::vector<int>& makes = call_at(call).makes;
      if (std::any_of(makes.begin(), makes.end(),
                      [this](int id) { return is_wanted_inside(id) && is_worth_a_replay(id); })) {
        replayed_[to_index(call)] = true;
      }
      for (const int id : makes) {
        const bool wanted = is_unsaved(value(id)) && readers_[to_index(id)].first >= 0;
        if (wanted && !(replayed_[to_index(call)] && is_wanted_inside(id)))
          anchor_of_[to_index(id)] = kWanted;
      }
      if (replayed_[to_index(call)]) note_reads(call);
    }
  }

  void note_reads(int call) {
    const std::uint64_t made = wanted_bytes(call);
    for (const int id : call_at(call).reads) {
      if (value(id).call < 0) continue;
      Readers& readers = readers_[to_index(id)];
      if (readers.first != call) readers.made = saturating_sum(readers.made, made);
      readers.first = call;
      if (weights_.crosses(id, call)) readers.first_from_outside = call;
    }
  }

  /// Recomputed buffers that lead replays from one layer into another.
  [[nodiscard]] std::size_t count_passages() const {
    const auto leads_out = [this](const Decision& decision) {
      if (decision.action.kind != ActionKind::kRecompute) return false;
      const int id = chunk_.buffers[to_index(decision.buffer)].value;
      const int reader = readers_[to_index(id)].first_from_outside;
      return reader >= 0 && call_at(reader).layer >= 0 && call_at(value(id).call).layer >= 0;
    };
    return static_cast<std::size_t>(
        std::count_if(plan_.decisions.begin(), plan_.decisions.end(), leads_out));
  }

  void add_anchors() {
    for (int call = 0; call < static_cast<int>(chunk_.operators.size()); ++call) {
      const std::vector<int>& makes = call_at(call).makes;
      for (std::size_t output = 0; output < makes.size(); ++output) {
        int& anchor = anchor_of_[to_index(makes[output])];
        if (anchor != kWanted) continue;
        anchor = static_cast<int>(plan_.anchors.size());
        plan_.anchors.push_back(make_anchor(makes[output], static_cast<int>(output)));
      }
    }
  }

  [[nodiscard]] Anchor make_anchor(int id, int output) {
    const OperatorProfile& made_by = call_at(value(id).call);
    Anchor anchor;
    anchor.call = value(id).call;
    anchor.output = output;
    anchor.name = made_by.name;
    anchor.scope = made_by.scope;
    anchor.bytes = value(id).size;
    anchor.saves = made_by.saves;
    anchor.ordinal = made_by.ordinal;
    const Weighed& weighed = weights_.of(id);
    const Readers& readers = readers_[to_index(id)];
    if (readers.first_from_outside < 0 && weighed.preference == Preference::kNamed) {
      anchor.action = rules_.rules[weighed.rule].action;
      anchor.reason = name_of(rules_.rules[weighed.rule], weighed.rule);
      ++summary_.anchors_by_rule[weighed.rule];
      return anchor;
    }
    anchor.reason = why(id);
    const int reader = readers.first_from_outside < 0 ? readers.first : readers.first_from_outside;
    const bool small = rules_.limits.min_size && anchor.bytes < *rules_.limits.min_size;
    for (std::size_t i = 0; i < rules_.rules.size() && !small; ++i) {
      const Rule& rule = rules_.rules[i];
      if (rule.action.kind == ActionKind::kRecompute) continue;
      if (!weights_.matcher().matches(rule, value(id), call_at(reader).layer)) continue;
      anchor.action = rule.action;
      anchor.reason += "; " + name_of(rule, i);
      ++summary_.anchors_by_rule[i];
      return anchor;
    }
    if (request(id) == Request::kOffload && !small) anchor.action.kind = ActionKind::kOffload;
    anchor.reason += ": " + to_string(anchor.action);
    return anchor;
  }

  [[nodiscard]] std::string why(int id) const {
    if (readers_[to_index(id)].first_from_outside >= 0) {
      const int layer = call_at(readers_[to_index(id)].first_from_outside).layer;
      return layer < 0 ? "leaves a layer" : "enters a recomputed layer";
    }
    switch (weights_.of(id).preference) {
      case Preference::kImpossible:
        return weights_.obstacles().of_call(value(id).call);
      case Preference::kSlow:
        return "takes longer to make than to fetch";
      case Preference::kReplay:
      case Preference::kNamed:
      case Preference::kByBytes:
        return "not larger than what it is made of";
    }
    return {};
  }

  void add_operators() {
    std::vector<bool> recorded = replayed_;
    for (const Anchor& anchor : plan_.anchors) recorded[to_index(anchor.call)] = true;
    for (int call = 0; call < static_cast<int>(recorded.size()); ++call) {
      if (recorded[to_index(call)]) plan_.operators.push_back({call, call_at(call).name});
    }
  }

  const Weights& weights_;
  const ChunkProfile& chunk_;
  const Rules& rules_;
  ChunkPlan& plan_;
  const std::vector<Request>& requests_;  // By value, or empty.
  std::vector<bool> replayed_;            // By call.
  std::vector<Readers> readers_;          // By value.
  std::vector<int> anchor_of_;  // By value: its index among the anchors, -1 if it is none.
  RecomputeSummary summary_;
};

}  // namespace

RecomputeSummary plan_recompute(const Weights& weights, ChunkPlan& plan,
                                const std::vector<Request>& requests) {
  return RecomputePlanner(weights, plan, requests).run();
}

}  // namespace spillway
