#include "plan/simulate/planned_chunk.hpp"

#include <algorithm>
#include <tuple>

#include "spillway/core/index.hpp"
#include "spillway/plan/shard.hpp"

namespace spillway {
namespace {

void shard(PlannedItem& item, const Action& action, int ranks) {
  if (!action.shard || ranks < 2 || item.bytes == 0) return;
  item.part = static_cast<std::int64_t>(part_of(static_cast<std::uint64_t>(item.bytes), ranks));
  item.whole = item.part * ranks;
}

void add_buffers(PlannedChunk& chunk, int ranks) {
  for (std::size_t i = 0; i < chunk.model->buffers.size(); ++i) {
    const BufferLife& life = chunk.model->buffers[i];
    PlannedItem item;
    item.bytes = life.bytes;
    item.action = life.movable ? chunk.plan->decisions[i].action.kind : ActionKind::kKeep;
    item.counted = life.counted;
    item.managed = life.managed;
    item.allocated = life.allocated;
    item.entered = life.managed ? life.saved : -1;
    item.model_until = std::min(life.last_forward_use, life.dropped);
    if (item.action == ActionKind::kRecompute) item.given_up = chunk.replays.given_up[i];
    item.dropped = life.dropped;
    item.freed = chunk.replays.needed_until[i];
    if (life.movable) shard(item, chunk.plan->decisions[i].action, ranks);
    chunk.items.push_back(item);
  }
}

/// A caller that passes a value to a call releases it when the call has returned, before anything
/// else begins.
int last_use_after(const PlannedChunk& chunk, int last_read) {
  const bool calls_next = last_read >= 0 && last_read < chunk.model->end &&
                          chunk.moment(last_read + 1).kind == MomentKind::kCallBegins;
  return calls_next ? last_read + 1 : last_read;
}

void add_anchors(PlannedChunk& chunk, int ranks) {
  const std::size_t buffers = chunk.model->buffers.size();
  for (std::size_t i = 0; i < chunk.plan->anchors.size(); ++i) {
    const Anchor& anchor = chunk.plan->anchors[i];
    const OperatorProfile& call = chunk.model->chunk->operators[to_index(anchor.call)];
    const std::size_t value = to_index(call.makes[to_index(anchor.output)]);
    PlannedItem item;
    item.bytes = chunk.model->value_bytes[value];
    item.action = anchor.action.kind;
    item.anchor = true;
    item.managed = true;
    item.entered = chunk.replays.anchored[i];
    item.model_until = last_use_after(chunk, chunk.model->last_read[value]);
    item.freed = chunk.replays.needed_until[buffers + i];
    item.dropped = item.freed;
    if (call.no_replay != kCollective) shard(item, anchor.action, ranks);
    chunk.items.push_back(item);
  }
}

void add_needs(PlannedChunk& chunk) {
  const auto need = [&](int item, int moment) {
    int& needed = chunk.items[to_index(item)].needed;
    if (needed < 0 || moment < needed) needed = moment;
  };
  for (std::size_t i = 0; i < chunk.model->unpack_moment.size(); ++i) {
    need(chunk.model->chunk->unpack_order[i], chunk.model->unpack_moment[i]);
  }
  for (const ReplayJob& job : chunk.replays.jobs) {
    for (const int read : job.reads) need(read, chunk.model->unpack_moment[to_index(job.unpack)]);
  }
}

void add_events(PlannedChunk& chunk) {
  const auto add = [&](int moment, ItemEventKind kind, std::size_t item) {
    if (moment >= 0) chunk.events.push_back({moment, kind, static_cast<int>(item)});
  };
  for (std::size_t i = 0; i < chunk.items.size(); ++i) {
    const PlannedItem& item = chunk.items[i];
    if (item.counted) add(item.allocated, ItemEventKind::kAllocated, i);
    if (item.counted || item.managed) add(item.model_until, ItemEventKind::kLastForwardUse, i);
    if (item.anchor) add(item.entered, ItemEventKind::kAnchored, i);
    add(item.given_up, ItemEventKind::kGivenUp, i);
    if (item.counted || item.entered >= 0) add(item.freed, ItemEventKind::kFreed, i);
  }
  std::sort(chunk.events.begin(), chunk.events.end(), [](const ItemEvent& a, const ItemEvent& b) {
    return std::tie(a.moment, a.kind, a.item) < std::tie(b.moment, b.kind, b.item);
  });
  chunk.first_event.assign(to_index(chunk.model->end) + 2, 0);
  for (const ItemEvent& event : chunk.events) ++chunk.first_event[to_index(event.moment) + 1];
  for (std::size_t i = 1; i < chunk.first_event.size(); ++i) {
    chunk.first_event[i] += chunk.first_event[i - 1];
  }
}

void add_reload_order(PlannedChunk& chunk) {
  std::vector<bool> queued(chunk.items.size());
  const auto queue = [&](int id) {
    const PlannedItem& item = chunk.items[to_index(id)];
    if (item.action != ActionKind::kOffload || item.part > 0 || queued[to_index(id)]) return;
    queued[to_index(id)] = true;
    chunk.reload_order.push_back(id);
  };
  for (const int id : chunk.plan->need_order) queue(id);
  for (int id = static_cast<int>(chunk.items.size()) - 1; id >= 0; --id) queue(id);
}

/// By buffer: the largest results of a call that saved it. Gradients take as much when backward
/// unpacks it.
std::vector<std::int64_t> gradient_bytes(const PlannedChunk& chunk) {
  const ChunkProfile& profile = *chunk.model->chunk;
  std::vector<std::int64_t> most(profile.buffers.size(), 0);
  for (std::size_t site = 0; site < profile.sites.size(); ++site) {
    const int call = chunk.model->save_call[site];
    if (call < 0) continue;
    std::int64_t bytes = 0;
    for (const int value : profile.operators[to_index(call)].makes) {
      bytes = std::max(bytes, chunk.model->value_bytes[to_index(value)]);
    }
    std::int64_t& found = most[to_index(profile.sites[site].buffer)];
    found = std::max(found, bytes);
  }
  return most;
}

/// By moment: an upper bound on the bytes that persist from it to the end.
std::vector<std::int64_t> persistent_from(const PlannedChunk& chunk) {
  const std::vector<std::int64_t> gradients = gradient_bytes(chunk);
  std::vector<std::int64_t> least(to_index(chunk.model->end) + 1, 0);
  std::int64_t so_far = chunk.persistent_bytes;
  for (int at = chunk.model->end; at > chunk.model->backward_begins; --at) {
    const Moment& moment = chunk.moment(at);
    std::int64_t bytes = moment.untracked_bytes;
    if (moment.kind == MomentKind::kUnpack) {
      bytes -= gradients[to_index(chunk.model->chunk->unpack_order[to_index(moment.index)])];
    }
    so_far = std::max<std::int64_t>(0, std::min(so_far, bytes));
    least[to_index(at)] = so_far;
  }
  return least;
}

void add_persistent_bytes(PlannedChunk& chunk) {
  const auto other = [&](int moment) { return chunk.moment(moment).untracked_bytes; };
  const int end = chunk.model->end;
  const int begins = chunk.model->backward_begins;
  chunk.between_bytes = std::max<std::int64_t>(
      0, begins < end ? std::min(other(begins), other(begins + 1)) : other(begins));
  chunk.persistent_bytes = std::max<std::int64_t>(0, other(end));
  if (chunk.model->chunk->later_untracked_bytes) {
    for (int moment = 0; moment <= end; ++moment) {
      const std::int64_t later = (*chunk.model->chunk->later_untracked_bytes)[to_index(moment)];
      chunk.grown_bytes.push_back(moment > begins ? other(moment) - later : 0);
    }
    return;
  }
  const std::vector<std::int64_t> persistent = persistent_from(chunk);
  // Later passes allocate what a node of the graph adds, then add it to the existing gradient.
  chunk.grown_bytes.assign(to_index(end) + 1, 0);
  std::int64_t before_node = 0;
  for (int moment = begins + 1; moment <= end; ++moment) {
    chunk.grown_bytes[to_index(moment)] = before_node;
    const bool first_unpack = chunk.moment(moment).kind == MomentKind::kUnpack &&
                              chunk.moment(moment - 1).kind != MomentKind::kUnpack;
    if (first_unpack) before_node = persistent[to_index(moment)];
  }
}

}  // namespace

PlannedChunk planned(const PassModel& model, const ChunkPlan& plan, const Limits& limits,
                     int ranks) {
  PlannedChunk chunk;
  chunk.model = &model;
  chunk.replays = replays_of(model, plan, limits.recompute_cache.value_or(kDefaultRecomputeCache));
  chunk.plan = &plan;
  add_buffers(chunk, ranks);
  add_anchors(chunk, ranks);
  add_needs(chunk);
  add_events(chunk);
  add_reload_order(chunk);
  chunk.gathers = gather_order(plan);
  add_persistent_bytes(chunk);
  return chunk;
}

}  // namespace spillway
