#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "session_core.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// Not 0.
std::uint64_t word_for(const std::string& text) {
  return std::max<std::uint64_t>(1, std::hash<std::string>()(text));
}

}  // namespace

// Ranks measure different times, and a planner that runs out of time ends anywhere: the ranks of a
// shard group would never have the same plan. So the first one plans, and the others take its plan.

bool SessionCore::plans_together() const {
  return options_.budget && sharding_.group != nullptr && sharding_.group->size() > 1 &&
         may_shard(options_.rules);
}

std::vector<std::vector<bool>> SessionCore::equal_buffers() const {
  std::vector<std::vector<bool>> equal;
  if (!options_.rules.plan_shards || sharding_.equal.empty()) return equal;
  for (const ChunkProfile& chunk : profile_->chunks) {
    std::vector<bool>& of = equal.emplace_back();
    for (const BufferProfile& buffer : chunk.buffers) {
      of.push_back(sharding_.equal.contains({chunk.chunk, buffer.id}));
    }
  }
  return equal;
}

void SessionCore::remember_plan() {
  budgeting_.adopted.reset();
  budgeting_.adopted_word = 0;
  if (!plans_together() || budgeting_.waiting) return;
  budgeting_.adopted = plan_;
  budgeting_.adopted_word = word_for(to_json(*plan_));
}

void SessionCore::share_plan() {
  if (!plans_together()) return;
  const bool has_plan = budgeting_.adopted != nullptr && !budgeting_.waiting && !record_next_;
  const std::uint64_t mine = has_plan ? budgeting_.adopted_word : 0;
  const Bytes budget = has_plan ? plan_->budget.value_or(Bytes(0)) : Bytes(0);
  const Bytes peak = has_plan ? budgeting_.measured_peak : Bytes(0);
  const std::vector<std::uint64_t> words =
      ask({mine, (peak - std::min(peak, budget)).count()})->read();
  bool same = true;
  Bytes excess;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    same = same && words[i] == words[0];
    if (i > 0 && words[i] == words[0]) excess = std::max(excess, Bytes(words[i + 1]));
  }
  if (sharding_.group->rank() == 0 && mine != 0) make_room_for_others(excess);
  if (words[0] == 0 || same) return;
  const std::string text = send_plan();
  if (mine == words[0] || record_next_ || profile_ == nullptr) return;
  Plan plan = plan_from_json(text, "the plan of the shard group's first rank");
  if (!made_for(plan, *profile_)) {
    count_fallback("the plan of the shard group's first rank is for another structure");
    return;
  }
  budgeting_.problem.clear();
  budgeting_.waiting = false;
  ++budgeting_.plans;
  adopt_plan(std::move(plan));
}

std::string SessionCore::send_plan() {
  std::string text = sharding_.group->rank() == 0 ? to_json(*budgeting_.adopted) : std::string();
  const auto size = static_cast<std::size_t>(ask({text.size()})->read()[0]);
  std::vector<std::uint64_t> mine((size + 7) / 8);
  std::memcpy(mine.data(), text.data(), text.size());
  const CallRecorder::Pause pause;
  const std::vector<std::uint64_t> all = sharding_.group->exchange(mine)->read();
  text.resize(size);
  std::memcpy(text.data(), all.data(), size);
  return text;
}

}  // namespace spillway
