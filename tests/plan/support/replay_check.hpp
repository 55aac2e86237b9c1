/// Whether a plan can be executed: every replay finds its inputs in time.
#pragma once

#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway::testing {

/// Simulates one chunk's backward pass.
class ReplayCheck {
 public:
  ReplayCheck(const ChunkProfile& chunk, const ChunkPlan& plan) : chunk_(chunk), plan_(plan) {
    for (const RecordedOperator& each : plan.operators) recorded_.insert(each.call);
    for (std::size_t i = 0; i < plan.anchors.size(); ++i) {
      const Anchor& anchor = plan.anchors[i];
      const auto call = static_cast<std::size_t>(anchor.call);
      anchors_[chunk.operators[call].makes[static_cast<std::size_t>(anchor.output)]] =
          static_cast<int>(plan.decisions.size() + i);
    }
  }

  void run() {
    int last = -1;
    for (const RecordedOperator& each : plan_.operators) {
      EXPECT_LT(last, each.call);
      EXPECT_EQ(each.name, chunk_.operators[static_cast<std::size_t>(each.call)].name);
      last = each.call;
    }
    std::set<int> needed;
    for (const int id : plan_.need_order) {
      EXPECT_TRUE(needed.insert(id).second) << id << " is needed twice";
      if (static_cast<std::size_t>(id) < plan_.decisions.size()) use(id, needed);
    }
    for (const int id : chunk_.unpack_order) EXPECT_TRUE(needed.contains(id)) << id;
    const std::set<int> unpacked(chunk_.unpack_order.begin(), chunk_.unpack_order.end());
    if (unpacked.size() == plan_.decisions.size()) check_nothing_is_too_much(needed);
  }

 private:
  /// Precondition: backward wants every buffer.
  void check_nothing_is_too_much(const std::set<int>& needed) const {
    std::set<int> used = replayed_;
    for (const auto& [value, id] : anchors_) {
      EXPECT_TRUE(needed.contains(id)) << "nothing needs the anchor of value " << value;
      used.insert(chunk_.values[static_cast<std::size_t>(value)].call);
    }
    EXPECT_EQ(used, recorded_);
  }

  [[nodiscard]] bool is_recomputed(int buffer) const {
    return plan_.decisions[static_cast<std::size_t>(buffer)].action.kind == ActionKind::kRecompute;
  }

  void use(int buffer, const std::set<int>& needed) {
    if (!is_recomputed(buffer)) return;
    const int value = chunk_.buffers[static_cast<std::size_t>(buffer)].value;
    ASSERT_GE(value, 0);
    std::vector<int> open = {chunk_.values[static_cast<std::size_t>(value)].call};
    while (!open.empty()) {
      const int call = open.back();
      open.pop_back();
      ASSERT_GE(call, 0) << "buffer " << buffer << " needs what nothing makes";
      if (!replayed_.insert(call).second) continue;
      EXPECT_TRUE(recorded_.contains(call)) << "call " << call << " is not recorded";
      for (const int read : chunk_.operators[static_cast<std::size_t>(call)].reads) {
        if (!is_there(read, needed)) {
          open.push_back(chunk_.values[static_cast<std::size_t>(read)].call);
        }
      }
    }
  }

  /// Whether a value is an anchor; then it must have been needed before.
  [[nodiscard]] bool is_there(int value, const std::set<int>& needed) const {
    const ValueProfile& read = chunk_.values[static_cast<std::size_t>(value)];
    if (read.buffer >= 0) {
      if (is_recomputed(read.buffer)) return false;
      EXPECT_TRUE(needed.contains(read.buffer)) << "buffer " << read.buffer << " comes too late";
      return true;
    }
    if (read.persistent) return true;
    const auto anchor = anchors_.find(value);
    if (anchor == anchors_.end()) return false;
    EXPECT_TRUE(needed.contains(anchor->second))
        << "the anchor of value " << value << " comes too late";
    return true;
  }

  const ChunkProfile& chunk_;
  const ChunkPlan& plan_;
  std::set<int> recorded_;
  std::map<int, int> anchors_;  // By value: how need_order counts it.
  std::set<int> replayed_;
};

inline void check_replays(const Plan& plan, const Profile& profile) {
  ASSERT_EQ(plan.chunks.size(), profile.chunks.size());
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    ReplayCheck(profile.chunks[i], plan.chunks[i]).run();
  }
}

}  // namespace spillway::testing
