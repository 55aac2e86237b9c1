#include <algorithm>
#include <limits>

#include "spillway/core/index.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/shard.hpp"

namespace spillway {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

class Orderer {
 public:
  explicit Orderer(const ChunkPlan& plan) : plan_(plan) {
    const std::size_t items = plan.decisions.size() + plan.anchors.size();
    order_.position.resize(items);
    order_.due.resize(items);
    first_.assign(items, kNever);
    last_.assign(items, kNever);
    for (std::size_t i = 0; i < plan.need_order.size(); ++i) {
      const std::size_t id = to_index(plan.need_order[i]);
      if (first_[id] == kNever) {
        first_[id] = i;
        order_.position[id] = ++positions_;
      }
      last_[id] = i;
    }
    // What the profiled backward did not need comes last.
    for (std::size_t id = items; id-- > 0;) {
      if (order_.position[id] == 0) order_.position[id] = ++positions_;
    }
  }

  [[nodiscard]] GatherOrder run() && {
    std::vector<std::size_t> shards;
    for (std::size_t id = 0; id < first_.size(); ++id) {
      if (action(id).shard && first_[id] != kNever) shards.push_back(id);
    }
    std::sort(shards.begin(), shards.end(),
              [&](std::size_t a, std::size_t b) { return first_[a] < first_[b]; });
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const bool last = i + 1 == shards.size();
      const std::size_t end = last ? plan_.need_order.size() : first_[shards[i + 1]];
      const int due = last ? positions_ + 1 : order_.position[shards[i + 1]];
      order_.due[trigger(shards[i], end, bytes(last ? shards[0] : shards[i + 1]))] = due;
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] const Action& action(std::size_t id) const {
    const std::size_t buffers = plan_.decisions.size();
    return id < buffers ? plan_.decisions[id].action : plan_.anchors[id - buffers].action;
  }
  [[nodiscard]] std::uint64_t bytes(std::size_t id) const {
    const std::size_t buffers = plan_.decisions.size();
    return (id < buffers ? plan_.decisions[id].bytes : plan_.anchors[id - buffers].bytes).count();
  }

  /// The item, from the use of `shard` on and before `end`, at whose unpack an all-gather of
  /// `wanted` bytes may begin: the whole, a part, and all that is still to be recomputed there take
  /// no more than the largest buffer recomputed there.
  [[nodiscard]] std::size_t trigger(std::size_t shard, std::size_t end,
                                    std::uint64_t wanted) const {
    std::size_t found = shard;
    std::uint64_t largest = 0;
    for (std::size_t i = first_[shard] + 1; i < end; ++i) {
      const std::size_t id = to_index(plan_.need_order[i]);
      if (action(id).kind != ActionKind::kRecompute || first_[id] != i) continue;
      found = id;
      largest = std::max(largest, bytes(id));
    }
    std::uint64_t to_come = 2 * wanted;
    for (std::size_t i = end; i-- > first_[shard] + 1;) {
      const std::size_t id = to_index(plan_.need_order[i]);
      if (action(id).kind != ActionKind::kRecompute) continue;
      if (last_[id] == i) to_come += bytes(id);
      if (to_come > largest) break;
      if (first_[id] == i) found = id;
    }
    return found;
  }

  const ChunkPlan& plan_;
  std::vector<std::size_t> first_;  // By id: in the order of needs.
  std::vector<std::size_t> last_;
  int positions_ = 0;
  GatherOrder order_;
};

}  // namespace

GatherOrder gather_order(const ChunkPlan& plan) { return Orderer(plan).run(); }

}  // namespace spillway
