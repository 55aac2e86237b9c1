#include "plan/simulate/step_walk.hpp"

#include <algorithm>
#include <utility>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// In a list of reloads: a session is not asked there.
constexpr int kAsBefore = -1;

}  // namespace

StepLimits::StepLimits(const Plan& plan, const Limits& windows) {
  const auto pick = [](std::optional<Bytes> first, std::optional<Bytes> second,
                       std::int64_t otherwise) {
    const std::optional<Bytes> found = first ? first : second;
    return found ? EngineLimits::count(*found) : otherwise;
  };
  const std::int64_t window = EngineLimits::count(kDefaultWindow);
  host = pick(plan.limits.host, windows.host, EngineLimits::kNone);
  engine.offload_window = pick(plan.limits.offload_window, windows.offload_window, window);
  engine.prefetch_window = pick(plan.limits.prefetch_window, windows.prefetch_window, window);
  engine.cap = pick(plan.cap, std::nullopt, EngineLimits::kNone);
  engine.shard_offload_window = engine.offload_window;
  engine.shard_prefetch_window = engine.prefetch_window;
}

StepWalk::StepWalk(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                   const StepLimits& limits, StepListener& listener)
    : chunks_(chunks),
      schedule_(schedule),
      listener_(listener),
      port_(schedule, listener, limits.host, forwards_of(schedule)) {
  port_.machine().set_limits(limits.engine);
  lay_out();
}

std::size_t StepWalk::forwards_of(const PassSchedule& schedule) {
  return static_cast<std::size_t>(std::count_if(
      schedule.begin(), schedule.end(), [](const PassStep& step) { return !step.backward; }));
}

void StepWalk::lay_out() {
  int position = 0;
  std::vector<PassStep> forwards;
  for (const PassStep& step : schedule_) {
    const auto same = [&](const PassStep& other) {
      return other.chunk == step.chunk && other.micro_batch == step.micro_batch;
    };
    const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const PlannedChunk& each) {
      return each.model->chunk->chunk == step.chunk;
    });
    const int begins = chunk->model->backward_begins;
    if (!step.backward) {
      forwards.push_back(step);
      parts_.push_back({static_cast<int>(chunk - chunks_.begin()), begins, position, 0});
      position += begins;
      continue;
    }
    const auto forward = std::find_if(forwards.begin(), forwards.end(), same);
    parts_[to_index(static_cast<int>(forward - forwards.begin()))].backward = position - begins;
    position += chunk->model->end + 1 - begins;
  }
}

void StepWalk::run() {
  for (port_.step = 0; port_.step < schedule_.size(); ++port_.step) {
    const PassStep& step = schedule_[port_.step];
    if (!step.backward) begin_pass(step);
    const int number =
        step.backward ? port_.number_of(step) : static_cast<int>(port_.passes().size()) - 1;
    port_.now = {number, parts_[to_index(number)].chunk, step.backward, 0};
    find_base();
    const PassModel& model = *chunk_of(port_.now).model;
    if (step.backward) {
      run_part(model.backward_begins, model.end);
      current().ended = true;
    } else {
      run_part(0, model.backward_begins - 1);
    }
  }
  if (recorded_ != nullptr) finish_recording();
}

void StepWalk::begin_pass(const PassStep& step) {
  const std::size_t number = port_.passes().size();
  const PlannedChunk& chunk = chunks_[to_index(parts_[number].chunk)];
  const auto before = std::count_if(port_.passes().begin(), port_.passes().end(),
                                    [&](const SimPass& each) { return each.chunk == &chunk; });
  SimPass& pass = port_.begin_pass(step, chunk);
  pass.residency = given_ != nullptr ? &(*given_)[number]
                                     : chunk.plan->residency.of(static_cast<std::size_t>(before));
  if (recorded_ == nullptr) return;
  Residency& list = recorded_->emplace_back();
  list.pending.assign(chunk.model->save_moment.size(), 0);
  list.reloads.assign(chunk.model->unpack_moment.size(), kAsBefore);
  list.own_reloads = static_cast<int>(chunk.reload_order.size());
}

void StepWalk::record_held(const SimPass& pass) {
  // Another forward comes before its backward: it is unknown how long that takes.
  if (to_index(pass.number) + 1 != port_.passes().size()) return;
  for (const SimBuffer& each : pass.items) {
    if (each.pass == nullptr || each.released) continue;
    const PlannedItem& item = port_.item(each);
    if (item.action != ActionKind::kOffload || item.part > 0) continue;
    if (!is_in_window(each.state) && each.state != BufferState::kFreed) continue;
    (*recorded_)[to_index(pass.number)].held.push_back(each.id);
  }
}

void StepWalk::record_reloads(const SimPass& pass, int unpack) {
  Residency& list = (*recorded_)[to_index(pass.number)];
  const auto [waiting, rank] = port_.machine().next_reload();
  int& until = list.reloads[to_index(unpack)];
  if (waiting == &pass) return void(until = rank);
  const SimPass* const next = port_.next_backward();
  if (waiting == nullptr) {
    until = list.own_reloads;
    if (next != nullptr) until += static_cast<int>(next->chunk->reload_order.size());
  } else if (waiting == next) {
    until = list.own_reloads + rank;
  }
}

void StepWalk::finish_recording() {
  for (Residency& list : *recorded_) {
    int last = 0;
    for (int& until : list.reloads) last = until = until < 0 ? last : until;
  }
}

void StepWalk::find_base() {
  base_bytes_ = 0;
  std::vector<bool> ended(chunks_.size());
  for (const SimPass& pass : port_.passes()) {
    if (pass.ended) {
      ended[to_index(parts_[to_index(pass.number)].chunk)] = true;
    } else if (pass.number != port_.now.pass) {
      base_bytes_ += pass.chunk->between_bytes;
    }
  }
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (ended[i]) base_bytes_ += chunks_[i].persistent_bytes;
  }
  const std::size_t chunk = to_index(port_.now.chunk);
  grown_ = ended[chunk] ? &chunks_[chunk].grown_bytes : nullptr;
}

std::int64_t StepWalk::untracked_at(const StepPosition& at) const {
  const std::int64_t other = chunk_of(at).moment(at.moment).untracked_bytes;
  return grown_ == nullptr || !at.backward ? other : other - (*grown_)[to_index(at.moment)];
}

bool StepWalk::backward_follows(int pass) const {
  if (port_.step + 1 >= schedule_.size()) return false;
  const PassStep& next = schedule_[port_.step + 1];
  return next.backward && port_.number_of(next) == pass;
}

void StepWalk::run_part(int first, int last) {
  StepPosition& now = port_.now;
  for (now.moment = first; now.moment <= last; ++now.moment) {
    const Moment& moment = chunk_of(now).moment(now.moment);
    current().moment = now.moment;
    listener_.computes(now, moment.compute_ns, bytes_with(untracked_at(now)));
    act();
  }
}

void StepWalk::act() {
  const Moment& moment = chunk_of(port_.now).moment(port_.now.moment);
  run_events(ItemEventKind::kAllocated, ItemEventKind::kLastForwardUse);
  switch (moment.kind) {
    case MomentKind::kCallBegins:
    case MomentKind::kCallEnds:
    case MomentKind::kDrop:
    case MomentKind::kEnd:
      run_events(ItemEventKind::kAnchored, ItemEventKind::kFreed);
      break;
    case MomentKind::kSave:
      save(moment.index);
      break;
    case MomentKind::kBackwardBegins:
      begin_backward();
      run_events(ItemEventKind::kAnchored, ItemEventKind::kFreed);
      break;
    case MomentKind::kUnpack:
      unpack(moment.index);
      run_events(ItemEventKind::kAnchored, ItemEventKind::kFreed);
      break;
  }
  add_cached();
}

void StepWalk::add_cached() {
  SimPass& pass = current();
  const std::vector<CachedBytes>& cached = pass.chunk->replays.cached;
  for (; pass.next_cached < cached.size() && cached[pass.next_cached].moment == port_.now.moment;
       ++pass.next_cached) {
    cached_bytes_ += cached[pass.next_cached].bytes - pass.cached;
    pass.cached = cached[pass.next_cached].bytes;
  }
}

void StepWalk::run_events(ItemEventKind first, ItemEventKind last) {
  SimPass& pass = current();
  for (const ItemEvent& event : pass.chunk->events_at(port_.now.moment)) {
    if (event.kind < first || event.kind > last) continue;
    switch (event.kind) {
      case ItemEventKind::kAllocated:
        port_.set_hidden(pass, event.item, 1);
        break;
      case ItemEventKind::kLastForwardUse:
        if (pass.chunk->items[to_index(event.item)].managed) port_.set_hidden(pass, event.item, 0);
        break;
      case ItemEventKind::kAnchored:
        port_.enter(pass, event.item);
        break;
      case ItemEventKind::kGivenUp:
        port_.discard(pass.items[to_index(event.item)]);
        break;
      case ItemEventKind::kFreed:
        port_.freed(pass, event.item);
        break;
    }
  }
}

void StepWalk::save(int site) {
  SimPass& pass = current();
  const int id = pass.chunk->model->chunk->sites[to_index(site)].buffer;
  const PlannedItem& item = pass.chunk->items[to_index(id)];
  if (item.managed && item.entered == port_.now.moment) port_.enter(pass, id);
  run_events(ItemEventKind::kAnchored, ItemEventKind::kFreed);
  port_.machine().saved(pass, to_index(site), listener_.saved(*this, port_.now, site));
  if (recorded_ == nullptr) return;
  (*recorded_)[to_index(pass.number)].pending[to_index(site)] =
      static_cast<int>(port_.machine().window().count());
}

void StepWalk::begin_backward() {
  port_.close_forward();
  SimPass& pass = current();
  if (recorded_ != nullptr) record_held(pass);
  port_.machine().begin_backward(pass);
  port_.shards().begin_backward(pass);
}

void StepWalk::unpack(int unpack) {
  SimPass& pass = current();
  const int id = pass.chunk->model->chunk->unpack_order[to_index(unpack)];
  const PlannedItem& item = pass.chunk->items[to_index(id)];
  const bool caller_owned = pass.chunk->model->buffers[to_index(id)].caller_owned;
  if (!caller_owned && (!item.managed || item.entered < 0)) return;
  port_.fetched = 0;
  port_.shards().begin_due(pass, id);
  SimBuffer& buffer = pass.items[to_index(id)];
  if (caller_owned || buffer.state == BufferState::kFreed) {
    // It is on the device; or its first saved tensor was dropped before another one was saved, and
    // a profile has one life of a buffer only.
  } else if (item.action != ActionKind::kRecompute) {
    port_.machine().make_available(buffer);
  } else if (!is_on_device(buffer.state)) {
    recompute(buffer, unpack);
  }
  port_.machine().prefetch(pass, to_index(unpack),
                           listener_.unpacked(*this, port_.now, unpack, port_.fetched));
  if (recorded_ != nullptr) record_reloads(pass, unpack);
}

void StepWalk::recompute(SimBuffer& buffer, int unpack) {
  SimPass& pass = *buffer.pass;
  const std::vector<ReplayJob>& jobs = pass.chunk->replays.jobs;
  if (pass.next_job < jobs.size() && jobs[pass.next_job].unpack == unpack) {
    replay(pass, jobs[pass.next_job++]);
  } else if (!port_.machine().try_adopt(buffer)) {
    port_.machine().recomputed(buffer);  // An earlier job has left it.
  }
}

void StepWalk::replay(SimPass& pass, const ReplayJob& job) {
  for (const int read : job.reads) {
    SimBuffer& buffer = pass.items[to_index(read)];
    if (buffer.state != BufferState::kFreed) port_.machine().make_available(buffer);
  }
  port_.machine().replay(pass.items[to_index(job.buffer)]);
  // Both pieces around the moment had at least what is there now.
  const StepPosition& now = port_.now;
  const StepPosition after{now.pass, now.chunk, true, now.moment + 1};
  const std::int64_t other = std::min(untracked_at(now), untracked_at(after));
  std::int64_t made = 0;
  for (const int each : job.makes) made += pass.chunk->items[to_index(each)].bytes;
  listener_.repeats(now, job, bytes_with(other) - pass.cached + made + job.transient_bytes);
  for (const int each : job.makes) {
    SimBuffer& buffer = pass.items[to_index(each)];
    if (buffer.state != BufferState::kFreed) port_.machine().recomputed(buffer);
  }
}

}  // namespace spillway
