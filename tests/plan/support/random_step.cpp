#include "random_step.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "graph_builder.hpp"
#include "plan_queries.hpp"
#include "synthetic_timeline.hpp"

namespace spillway::testing {
namespace {

bool one_in(std::mt19937_64& random, std::uint64_t count) { return random() % count == 0; }

std::uint64_t random_size(std::mt19937_64& random) {
  const std::uint64_t most = one_in(random, 4) ? 40'000'000 : 2'000'000;
  return 1 + random() % most;
}

const std::vector<std::string> kScopes = {"a", "b", "c", "d"};

class RandomChunk {
 public:
  explicit RandomChunk(std::mt19937_64& random) : random_(random), graph_(2) {}

  [[nodiscard]] ChunkProfile make() && {
    for (int i = 0; i < 2; ++i) values_.push_back(graph_.outside(true));
    const std::uint64_t calls = 2 + random_() % 24;
    for (std::uint64_t i = 0; i < calls; ++i) add_call();
    if (graph_.chunk().buffers.empty()) save(values_.back());
    return std::move(graph_.profile(random_unpacks()).chunks.front());
  }

 private:
  void add_call() {
    GraphBuilder::Call call;
    call.layer = static_cast<int>(random_() % 3) - 1;
    call.ns = static_cast<std::int64_t>(random_() % 1'000'000);
    for (std::uint64_t i = random_() % 3; i > 0; --i) call.reads.push_back(recent_value());
    call.makes.clear();
    for (std::uint64_t i = 1 + random_() % 2; i > 0; --i)
      call.makes.push_back(random_size(random_));
    if (one_in(random_, 8)) call.no_replay = "a reason";
    const int first = graph_.call(call);
    graph_.chunk().operators.back().workspace =
        Bytes(one_in(random_, 3) ? random_size(random_) : 0);
    for (int i = 0; i < static_cast<int>(call.makes.size()); ++i) values_.push_back(first + i);
    for (const int read : call.reads) {
      if (one_in(random_, 2)) save(read);
    }
    if (one_in(random_, 2)) save(first);
  }

  [[nodiscard]] int recent_value() {
    const std::uint64_t back = random_() % std::min<std::size_t>(values_.size(), 5);
    return values_[values_.size() - 1 - back];
  }

  void save(int value) {
    const int known = graph_.chunk().values[static_cast<std::size_t>(value)].buffer;
    if (known >= 0) return graph_.save_again(known);
    const int id = graph_.save(value, kScopes[random_() % kScopes.size()]);
    BufferProfile& buffer = graph_.chunk().buffers[static_cast<std::size_t>(id)];
    const ValueProfile& held = graph_.chunk().values[static_cast<std::size_t>(value)];
    if (held.call < 0) {
      buffer.fixed = FixedReason::kParameter;
    } else if (one_in(random_, 6)) {
      buffer.fixed = one_in(random_, 2) ? FixedReason::kSmall : FixedReason::kCallerOwned;
    }
    buffer.recipe.usable = held.call >= 0;
  }

  [[nodiscard]] std::vector<int> random_unpacks() {
    std::vector<int> order;
    for (const SiteProfile& site : graph_.chunk().sites) order.push_back(site.buffer);
    std::reverse(order.begin(), order.end());
    if (one_in(random_, 3)) {
      for (std::uint64_t i = random_() % 4; i > 0; --i) {
        std::swap(order[random_() % order.size()], order[random_() % order.size()]);
      }
    }
    return order;
  }

  std::mt19937_64& random_;
  GraphBuilder graph_;
  std::vector<int> values_;
};

}  // namespace

Profile random_step_profile(std::mt19937_64& random) {
  Profile profile;
  profile.layers = 2;
  const double speed = 1e9 * static_cast<double>(1 + random() % 100);
  profile.link = {speed, speed * 1.1, speed * 0.8, speed * 0.9};
  profile.granularity = Bytes(one_in(random, 2) ? 512 : 0);
  const int chunks = one_in(random, 4) ? 2 : 1;
  for (int i = 0; i < chunks; ++i) {
    profile.chunks.push_back(RandomChunk(random).make());
    profile.chunks.back().chunk = 3 * i;
  }
  add_timelines(profile);
  for (ChunkProfile& chunk : profile.chunks) {
    for (BufferProfile& buffer : chunk.buffers) {
      if (one_in(random, 12)) buffer.last_forward_use = -1;
    }
  }
  if (one_in(random, 2)) {
    profile.link.slows_out = static_cast<double>(random() % 40) / 100;
    profile.link.slows_back = static_cast<double>(random() % 40) / 100;
  }
  return profile;
}

Plan random_plan(const Profile& profile, std::mt19937_64& random) {
  static const std::vector<std::string> kActions = {"keep", "offload", "recompute"};
  std::string rules;
  if (one_in(random, 4)) rules += "[[rule]]\ngroup_inputs = 1\naction = \"offload\"\n";
  for (const std::string& scope : kScopes) {
    rules += "[[rule]]\nscope = \"" + scope + "\"\naction = \"" +
             kActions[random() % kActions.size()] + "\"\n";
  }
  // What decides about anchors.
  rules += "[[rule]]\naction = \"" + kActions[random() % 2] + "\"\n";
  return plan_by(profile, rules);
}

PassSchedule random_schedule(const Profile& profile, std::mt19937_64& random) {
  const auto forward = [&](PassSchedule& schedule, int micro_batch) {
    for (const ChunkProfile& chunk : profile.chunks) {
      schedule.push_back({chunk.chunk, micro_batch, false});
    }
  };
  const auto backward = [&](PassSchedule& schedule, int micro_batch) {
    std::for_each(profile.chunks.rbegin(), profile.chunks.rend(), [&](const ChunkProfile& chunk) {
      schedule.push_back({chunk.chunk, micro_batch, true});
    });
  };
  const int kind = static_cast<int>(random() % 4);
  if (kind < 2) return accumulate(profile, 1 + kind);
  PassSchedule schedule;
  const int warm_up = 2 + static_cast<int>(random() % 2);
  const int batches = warm_up + static_cast<int>(random() % 3);
  for (int i = 0; i < warm_up; ++i) forward(schedule, i);
  for (int i = 0; i < batches; ++i) {
    backward(schedule, i);
    if (i + warm_up < batches) forward(schedule, i + warm_up);
  }
  return schedule;
}

}  // namespace spillway::testing
