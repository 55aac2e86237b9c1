#include "spillway/plan/diff.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "plan/policy/fold.hpp"

namespace spillway {
namespace {

/// A buffer or an anchor of one plan, under the key by which both plans know it.
struct Member {
  std::string scope;
  std::string name;
  Bytes bytes;
  std::string action;
};

template <typename Key>
using Members = std::vector<std::pair<Key, Member>>;

using BufferKey = std::pair<int, Position>;
using AnchorKey = std::tuple<int, std::string, std::string, int, int, int>;

Members<BufferKey> buffers_of(const Plan& plan) {
  Members<BufferKey> members;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Decision& decision : chunk.decisions) {
      members.push_back({{chunk.chunk, decision.position},
                         {decision.position.scope, decision.position.saver, decision.bytes,
                          to_string(decision.action)}});
    }
  }
  return members;
}

Members<AnchorKey> anchors_of(const Plan& plan) {
  Members<AnchorKey> members;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Anchor& anchor : chunk.anchors) {
      members.push_back(
          {{chunk.chunk, anchor.scope, anchor.name, anchor.saves, anchor.ordinal, anchor.output},
           {anchor.scope, anchor.name, anchor.bytes, to_string(anchor.action)}});
    }
  }
  return members;
}

/// Changes that a person would describe in the same words, in the order of their first member.
class Groups {
 public:
  void add(int chunk, const Member& member, const std::string& from, const std::string& to) {
    const FoldedScope scope = fold(member.scope);
    const auto [entry, added] =
        known_.try_emplace({chunk, scope.shape, member.name, from, to}, groups_.size());
    if (added) groups_.push_back({scope, {chunk, "", member.name, from, to, 0, {}}});
    auto& [folded, changed] = groups_[entry->second];
    folded.add(scope);
    ++changed.buffers;
    changed.bytes += member.bytes;
  }

  [[nodiscard]] std::vector<ChangedActions> take() && {
    std::vector<ChangedActions> taken;
    for (auto& [scope, changed] : groups_) {
      changed.scope = scope.text();
      taken.push_back(std::move(changed));
    }
    return taken;
  }

 private:
  std::vector<std::pair<FoldedScope, ChangedActions>> groups_;
  std::map<std::tuple<int, std::string, std::string, std::string, std::string>, std::size_t> known_;
};

template <typename Key>
std::vector<ChangedActions> changes(const Members<Key>& from, const Members<Key>& to) {
  const std::map<Key, Member> before(from.begin(), from.end());
  const std::map<Key, Member> after(to.begin(), to.end());
  Groups groups;
  for (const auto& [key, member] : to) {
    const auto found = before.find(key);
    const std::string action = found == before.end() ? "" : found->second.action;
    if (action != member.action) groups.add(std::get<0>(key), member, action, member.action);
  }
  for (const auto& [key, member] : from) {
    if (!after.contains(key)) groups.add(std::get<0>(key), member, member.action, "");
  }
  return std::move(groups).take();
}

template <typename Value>
void add_if_changed(std::vector<ChangedValue<Value>>& changed, const char* name,
                    const std::optional<Value>& from, const std::optional<Value>& to) {
  if (from != to) changed.push_back({name, from, to});
}

template <typename Of>
bool same_in_chunks(const Plan& from, const Plan& to, const Of& of) {
  return std::equal(from.chunks.begin(), from.chunks.end(), to.chunks.begin(), to.chunks.end(),
                    [&](const ChunkPlan& a, const ChunkPlan& b) { return of(a) == of(b); });
}

template <typename Member>
bool same_in_decisions(const Plan& from, const Plan& to, Member Decision::*member) {
  return std::equal(
      from.chunks.begin(), from.chunks.end(), to.chunks.begin(), to.chunks.end(),
      [&](const ChunkPlan& a, const ChunkPlan& b) {
        return std::equal(
            a.decisions.begin(), a.decisions.end(), b.decisions.begin(), b.decisions.end(),
            [&](const Decision& x, const Decision& y) { return x.*member == y.*member; });
      });
}

std::vector<std::string> other_changes(const Plan& from, const Plan& to) {
  std::vector<std::string> others;
  const auto note = [&others](bool same, const char* what) {
    if (!same) others.emplace_back(what);
  };
  note(same_in_decisions(from, to, &Decision::bytes), "sizes of buffers");
  note(same_in_decisions(from, to, &Decision::fallback), "fallbacks");
  note(same_in_decisions(from, to, &Decision::reason), "reasons");
  note(same_in_chunks(from, to, [](const ChunkPlan& each) { return each.operators; }),
       "recorded operators");
  note(same_in_chunks(from, to, [](const ChunkPlan& each) { return each.need_order; }),
       "order of needs");
  note(same_in_chunks(from, to, [](const ChunkPlan& each) { return each.residency; }),
       "residency lists");
  note(from.recompute_collectives == to.recompute_collectives, "recomputed collectives");
  note(from.notes == to.notes, "notes");
  return others;
}

}  // namespace

bool PlanDifference::empty() const noexcept {
  return same_structure() && bytes.empty() && times.empty() && buffers.empty() && anchors.empty() &&
         others.empty();
}

PlanDifference difference(const Plan& from, const Plan& to) {
  PlanDifference found;
  found.from_structure = from.structure;
  found.to_structure = to.structure;
  const Limits& before = from.limits;
  const Limits& after = to.limits;
  add_if_changed(found.bytes, "budget", from.budget, to.budget);
  add_if_changed(found.bytes, "predicted peak", from.predicted_peak, to.predicted_peak);
  add_if_changed(found.bytes, "cap", from.cap, to.cap);
  add_if_changed(found.bytes, "host memory", before.host, after.host);
  add_if_changed(found.bytes, "offload window", before.offload_window, after.offload_window);
  add_if_changed(found.bytes, "prefetch window", before.prefetch_window, after.prefetch_window);
  add_if_changed(found.bytes, "smallest buffer", before.min_size, after.min_size);
  add_if_changed(found.bytes, "recompute cache", before.recompute_cache, after.recompute_cache);
  add_if_changed(found.times, "predicted step", from.predicted_step_ns, to.predicted_step_ns);
  add_if_changed(found.times, "bound", from.bound_step_ns, to.bound_step_ns);
  add_if_changed(found.times, "everything kept", from.base_step_ns, to.base_step_ns);
  found.buffers = changes(buffers_of(from), buffers_of(to));
  found.anchors = changes(anchors_of(from), anchors_of(to));
  found.others = other_changes(from, to);
  // Whatever has no word of its own above must not make different plans look equal.
  if (found.empty() && from != to) found.others.emplace_back("how buffers are found");
  return found;
}

}  // namespace spillway
