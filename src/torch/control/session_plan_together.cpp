#include <algorithm>
#include <cstring>
#include <utility>

#include "spillway/core/error.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/error_text.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

/// Not 0.
std::uint64_t word_for(const std::string& text) {
  Digest digest;
  digest.add(text);
  return std::max<std::uint64_t>(1, digest.value());
}

constexpr std::uint64_t kNoError = 0;
constexpr std::uint64_t kInfeasible = 1;
constexpr std::uint64_t kOtherError = 2;

std::uint64_t kind_of(const std::exception_ptr& error) {
  if (error == nullptr) return kNoError;
  try {
    std::rethrow_exception(error);
  } catch (const PlanInfeasible&) {
    return kInfeasible;
  } catch (...) {
    return kOtherError;
  }
}

}  // namespace

// Ranks measure different times, and a planner that reaches its time limit stops at any point: the
// ranks of a shard group would never have the same plan. So the first rank plans, and the others
// use its plan.

bool SessionCore::plans_together() const {
  return options_.budget && sharding_.group != nullptr && sharding_.group->size() > 1 &&
         may_shard(options_.rules);
}

std::vector<std::vector<bool>> SessionCore::equal_buffers() const {
  std::vector<std::vector<bool>> equal;
  if (!options_.rules.plan_shards || sharding_.equal.empty()) return equal;
  for (const ChunkProfile& chunk : current_.profile()->chunks) {
    std::vector<bool>& of = equal.emplace_back();
    for (const BufferProfile& buffer : chunk.buffers) {
      of.push_back(sharding_.equal.contains({chunk.chunk, buffer.id}));
    }
  }
  return equal;
}

void SessionCore::remember_plan() {
  sharding_.adopted.reset();
  sharding_.adopted_word = 0;
  if (!plans_together() || controller_.due().due(StepMode::kInterim)) return;
  sharding_.adopted = current_.plan();
  sharding_.adopted_word = word_for(to_json(*current_.plan()));
}

void SessionCore::share_plan() {
  if (!plans_together()) return;
  const bool has_plan = sharding_.adopted != nullptr &&
                        !controller_.due().due(StepMode::kInterim) && !controller_.records_next();
  const std::uint64_t mine = has_plan ? sharding_.adopted_word : 0;
  const Bytes budget = has_plan ? current_.plan()->budget.value_or(Bytes(0)) : Bytes(0);
  const Bytes peak = has_plan ? controller_.budget().watch().measured_peak() : Bytes(0);
  const std::vector<std::uint64_t> words = ask({mine, (peak - std::min(peak, budget)).count(),
                                                kind_of(controller_.budget().problem().error)})
                                               ->read();
  if (words[2] != kNoError) share_error(words[2]);
  bool same = true;
  Bytes excess;
  for (std::size_t i = 0; i < words.size(); i += 3) {
    same = same && words[i] == words[0];
    if (i > 0 && words[i] == words[0]) excess = std::max(excess, Bytes(words[i + 1]));
  }
  // Replanning here would give the first rank a plan that the others do not have in this step.
  if (sharding_.group->rank() == 0 && mine != 0)
    controller_.budget().watch().note_excess_of_others(excess);
  if (words[0] == 0 || same) return;
  const std::string text =
      send_text(sharding_.group->rank() == 0 ? to_json(*sharding_.adopted) : std::string());
  if (mine == words[0] || controller_.records_next() || current_.profile() == nullptr) return;
  Plan plan = plan_from_json(text, "the plan of the shard group's first rank");
  if (!made_for(plan, *current_.profile())) {
    count_fallback("the plan of the shard group's first rank is for another structure");
    return;
  }
  controller_.adopt_shared(plan);
}

void SessionCore::share_error(std::uint64_t kind) {
  const bool mine = controller_.budget().problem().error != nullptr;
  const std::string text =
      send_text(mine ? text_of(controller_.budget().problem().error) : std::string());
  if (mine) controller_.budget().throw_problem();
  controller_.budget().problem().text = text;
  // The text begins with the operation in brackets.
  const std::size_t end = text.find("] ");
  const bool named = text.starts_with('[') && end != std::string::npos;
  const std::string operation = named ? text.substr(1, end - 1) : "plan";
  const std::string detail = named ? text.substr(end + 2) : text;
  if (kind == kInfeasible) throw PlanInfeasible(operation, detail);
  throw InvalidArgument(operation, "the first rank of the shard group could not plan: " + detail);
}

std::string SessionCore::send_text(std::string text) {
  const auto size = static_cast<std::size_t>(ask({text.size()})->read()[0]);
  std::vector<std::uint64_t> mine((size + 7) / 8);
  std::memcpy(mine.data(), text.data(), text.size());
  const RecordingPause pause;
  const std::vector<std::uint64_t> all = sharding_.group->exchange(mine)->read();
  text.resize(size);
  std::memcpy(text.data(), all.data(), size);
  return text;
}

}  // namespace spillway
