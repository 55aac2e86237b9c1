#include "torch/execute/chunk_layout.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "spillway/plan/planner.hpp"
#include "torch/record/pass_profiler.hpp"

namespace spillway {
namespace {

/// Undefined, which no tensor has, for an unknown name.
at::ScalarType dtype_named(const std::string& name) {
  for (int type = 0; type < static_cast<int>(at::ScalarType::NumOptions); ++type) {
    const auto dtype = static_cast<at::ScalarType>(type);
    if (name == c10::toString(dtype)) return dtype;
  }
  return at::ScalarType::Undefined;
}

std::vector<bool> compared_buffers(const ChunkLayout& layout, const ChunkPlan& plan) {
  std::vector<bool> compared;
  for (const ActionKind action : layout.action) {
    compared.push_back(action == ActionKind::kRecompute);
  }
  const auto buffer_of = [&](std::size_t site) {
    return static_cast<std::size_t>(layout.sites[site].buffer);
  };
  const auto may_compare = [&](std::size_t site) {
    const Decision& decision = plan.decisions[buffer_of(site)];
    return decision.fixed == FixedReason::kNone && !decision.action.shard;
  };
  std::vector<bool> also = compared;
  for (const auto& [signature, sites] : layout.sites_of) {
    const auto recomputed = [&](std::size_t site) { return compared[buffer_of(site)]; };
    if (std::ranges::none_of(sites, recomputed)) continue;
    for (const std::size_t site : sites) {
      if (may_compare(site)) also[buffer_of(site)] = true;
    }
  }
  return also;
}

/// By buffer: the scopes of the operators that saved it, each once.
std::vector<std::vector<std::string>> saving_scopes(const Profile& profile, int number) {
  std::vector<std::vector<std::string>> all;
  const auto chunk = std::ranges::find(profile.chunks, number, &ChunkProfile::chunk);
  if (chunk == profile.chunks.end()) return all;
  for (const BufferProfile& buffer : chunk->buffers) all.push_back(saving_scopes(buffer));
  return all;
}

std::size_t verification_bytes(const Profile& profile, const ChunkPlan& plan,
                               const std::vector<bool>& compared) {
  const auto chunk =
      std::find_if(profile.chunks.begin(), profile.chunks.end(),
                   [&](const ChunkProfile& each) { return each.chunk == plan.chunk; });
  if (chunk == profile.chunks.end()) return 0;
  std::map<int, std::size_t> by_layer;
  std::size_t most = 0;
  for (const Decision& decision : plan.decisions) {
    const auto id = static_cast<std::size_t>(decision.buffer);
    if (!compared[id] || id >= chunk->buffers.size()) continue;
    most = std::max(most, by_layer[chunk->buffers[id].layer] += decision.bytes.count());
  }
  return most;
}

}  // namespace

bool may_not_move(FixedReason reason) noexcept {
  return reason == FixedReason::kChangedLater || reason == FixedReason::kOwnedElsewhere;
}

std::shared_ptr<ChunkLayout> layout_of(const ChunkPlan& plan, bool budget, int ranks,
                                       const Profile* profile) {
  auto layout = std::make_shared<ChunkLayout>();
  std::vector<at::ScalarType> dtypes;
  for (const SiteKind& kind : plan.sites.kinds) dtypes.push_back(dtype_named(kind.dtype));
  for (std::size_t i = 0; i < plan.sites.kind.size(); ++i) {
    const auto kind = static_cast<std::size_t>(plan.sites.kind[i]);
    const auto dimensions = static_cast<std::size_t>(plan.sites.kinds[kind].dimensions);
    layout->sites.push_back({plan.sites.buffer[i], dtypes[kind], dimensions});
    if (plan.sites.signature.empty()) continue;
    layout->sites.back().signature = plan.sites.signature[i];
    layout->sites_of[plan.sites.signature[i]].push_back(i);
  }
  for (const Decision& decision : plan.decisions) {
    layout->action.push_back(decision.action.kind);
    layout->shard.push_back(decision.action.shard && decision.fixed == FixedReason::kNone);
    layout->fallback.push_back(decision.fallback);
    layout->caller_owned.push_back(decision.fixed == FixedReason::kCallerOwned);
    layout->owned_elsewhere.push_back(decision.fixed == FixedReason::kOwnedElsewhere);
    layout->bytes.push_back(decision.bytes.count());
    layout->may_offload.push_back(budget && decision.reason == kKeptByPlanner);
    layout->recomputes = layout->recomputes || layout->action.back() == ActionKind::kRecompute;
    layout->must_not_move = layout->must_not_move || may_not_move(decision.fixed);
  }
  for (const Anchor& anchor : plan.anchors) {
    layout->anchors.push_back({anchor.output, anchor.name, anchor.action.kind});
    layout->action.push_back(anchor.action.kind);
    layout->shard.push_back(anchor.action.shard);
  }
  std::vector<CallIndex::Entry> calls;
  for (const Anchor& anchor : plan.anchors) {
    const auto number = static_cast<int>(calls.size());
    // The name here, because the plan may be gone before its passes.
    const std::string& name = layout->anchors[calls.size()].name;
    calls.emplace_back(
        call_key(anchor.call, anchor.saves, anchor.ordinal, name, plan.calls_before_first_save),
        number);
  }
  layout->anchor_calls = CallIndex(std::move(calls));
  layout->compared = compared_buffers(*layout, plan);
  layout->residency = plan.residency;
  layout->gathers = gather_order(plan);
  for (const bool shard : layout->shard) layout->shards += shard ? 1 : 0;
  std::vector<bool> queued(layout->action.size());
  int planned = 0;  // So far.
  const auto queue = [&](int id) {
    const auto index = static_cast<std::size_t>(id);
    const bool offloads = layout->action[index] == ActionKind::kOffload;
    const bool may = index < layout->may_offload.size() && layout->may_offload[index];
    if ((!offloads && !may) || queued[index]) return;
    queued[index] = true;
    if (offloads && (!layout->shard[index] || ranks < 2)) ++planned;
    layout->reload_order.push_back({id, planned - 1});
  };
  for (const int id : plan.need_order) queue(id);
  for (auto id = static_cast<int>(layout->action.size()) - 1; id >= 0; --id) {
    queue(id);  // What the profiled backward did not read comes last.
  }
  if (profile != nullptr) {
    layout->verification_bytes = verification_bytes(*profile, plan, layout->compared);
    layout->saved_in = saving_scopes(*profile, plan.chunk);
  }
  return layout;
}

}  // namespace spillway
