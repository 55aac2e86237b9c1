#include "plan/recompute/need_order.hpp"

#include <algorithm>
#include <unordered_map>

#include "util/digest.hpp"

namespace spillway {
namespace {

class NeedOrder {
 public:
  NeedOrder(const ChunkProfile& chunk, const ChunkPlan& plan, const std::vector<int>& anchor_of)
      : chunk_(chunk),
        plan_(plan),
        anchor_of_(anchor_of),
        needed_(plan.decisions.size() + plan.anchors.size()),
        replayed_(chunk.operators.size()) {}

  [[nodiscard]] std::vector<int> run() && {
    for (const int buffer : chunk_.unpack_order) {
      if (is_recomputed(buffer)) replay(value(buffer_at(buffer).value).call);
      need(buffer);
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] const BufferProfile& buffer_at(int id) const {
    return chunk_.buffers[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const ValueProfile& value(int id) const {
    return chunk_.values[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const OperatorProfile& call_at(int call) const {
    return chunk_.operators[static_cast<std::size_t>(call)];
  }
  [[nodiscard]] bool is_recomputed(int buffer) const {
    const Decision& decision = plan_.decisions[static_cast<std::size_t>(buffer)];
    return decision.action.kind == ActionKind::kRecompute;
  }

  /// The buffer or anchor that holds a value; -1 if it is persistent or made by a replay.
  [[nodiscard]] int holder(int id) const {
    const int buffer = value(id).buffer;
    if (buffer >= 0) return is_recomputed(buffer) ? -1 : buffer;
    const int anchor = anchor_of_[static_cast<std::size_t>(id)];
    return anchor < 0 ? -1 : static_cast<int>(plan_.decisions.size()) + anchor;
  }

  void need(int id) {
    if (needed_[static_cast<std::size_t>(id)]) return;
    needed_[static_cast<std::size_t>(id)] = true;
    order_.push_back(id);
  }

  void replay(int last) {
    std::vector<int> calls;
    std::vector<int> open = {last};
    while (!open.empty()) {
      const int call = open.back();
      open.pop_back();
      if (call < 0 || replayed_[static_cast<std::size_t>(call)]) continue;
      replayed_[static_cast<std::size_t>(call)] = true;
      calls.push_back(call);
      for (const int id : call_at(call).reads) {
        if (holder(id) < 0) open.push_back(value(id).call);
      }
    }
    std::sort(calls.begin(), calls.end());
    for (const int call : calls) {
      for (const int id : call_at(call).reads) {
        if (holder(id) >= 0) need(holder(id));
      }
    }
  }

  const ChunkProfile& chunk_;
  const ChunkPlan& plan_;
  const std::vector<int>& anchor_of_;
  std::vector<bool> needed_;    // By buffer, then anchor.
  std::vector<bool> replayed_;  // By call.
  std::vector<int> order_;
};

}  // namespace

std::vector<int> need_order(const ChunkProfile& chunk, const ChunkPlan& plan,
                            const std::vector<int>& anchor_of) {
  return NeedOrder(chunk, plan, anchor_of).run();
}

// Without the numbers of calls and buffers: one rank may do something beside, as writing a log.
std::uint64_t replay_digest(const Plan& plan) {
  if (!plan.recompute_collectives) return 0;
  Digest digest;
  const auto add = [&](int number) { digest.add(static_cast<std::uint64_t>(number)); };
  for (const ChunkPlan& chunk : plan.chunks) {
    add(chunk.chunk);
    std::unordered_map<int, int> recomputed;  // By buffer: how many before it are recomputed.
    for (const Decision& decision : chunk.decisions) {
      if (decision.action.kind != ActionKind::kRecompute) continue;
      recomputed.emplace(decision.buffer, static_cast<int>(recomputed.size()));
      digest.add_field(decision.position.scope);
      digest.add_field(decision.position.saver);
      add(decision.position.ordinal);
    }
    for (const int buffer : chunk.need_order) {
      if (const auto found = recomputed.find(buffer); found != recomputed.end()) add(found->second);
    }
    for (const Anchor& anchor : chunk.anchors) {
      digest.add_field(anchor.name);
      add(anchor.ordinal);
      add(anchor.output);
    }
    for (const RecordedOperator& call : chunk.operators) digest.add_field(call.name);
  }
  return std::max<std::uint64_t>(1, digest.value());
}

}  // namespace spillway
