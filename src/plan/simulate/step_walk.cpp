#include "plan/simulate/step_walk.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "spillway/core/index.hpp"

namespace spillway {

StepWalk::StepWalk(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                   const StepLimits& limits, StepListener& listener, Tails tails)
    : chunks_(chunks),
      schedule_(schedule),
      limits_(limits),
      listener_(listener),
      tails_(std::move(tails)) {
  lay_out();
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
  for (step_ = 0; step_ < schedule_.size(); ++step_) {
    const PassStep& step = schedule_[step_];
    if (!step.backward) {
      Pass& pass = passes_.emplace_back();
      pass.key = step;
      pass.chunk = parts_[passes_.size() - 1].chunk;
      pass.items.resize(chunk_of(pass).items.size());
      found_tails_.push_back(std::numeric_limits<int>::max());
      close_forward();
      open_ = static_cast<int>(passes_.size()) - 1;
    }
    const int number = step.backward ? find_pass(step) : static_cast<int>(passes_.size()) - 1;
    now_ = {number, parts_[to_index(number)].chunk, step.backward, 0};
    find_base();
    const PassModel& model = *chunk_of(now_).model;
    if (step.backward) {
      run_part(model.backward_begins, model.end);
      passes_[to_index(number)].ended = true;
    } else {
      run_part(0, model.backward_begins - 1);
    }
  }
}

int StepWalk::find_pass(const PassStep& step) const {
  const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const Pass& pass) {
    return pass.key.chunk == step.chunk && pass.key.micro_batch == step.micro_batch;
  });
  return static_cast<int>(found - passes_.begin());
}

void StepWalk::find_base() {
  base_bytes_ = 0;
  std::vector<bool> ended(chunks_.size());
  for (std::size_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = passes_[i];
    if (pass.ended) {
      ended[to_index(pass.chunk)] = true;
    } else if (static_cast<int>(i) != now_.pass) {
      base_bytes_ += chunk_of(pass).between_bytes;
    }
  }
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (ended[i]) base_bytes_ += chunks_[i].persistent_bytes;
  }
  grown_ = ended[to_index(now_.chunk)] ? &chunks_[to_index(now_.chunk)].grown_bytes : nullptr;
}

std::int64_t StepWalk::untracked_at(const StepPosition& at) const {
  const std::int64_t other = chunk_of(at).moment(at.moment).untracked_bytes;
  return grown_ == nullptr || !at.backward ? other : other - (*grown_)[to_index(at.moment)];
}

bool StepWalk::backward_follows(int pass) const {
  if (step_ + 1 >= schedule_.size()) return false;
  const PassStep& next = schedule_[step_ + 1];
  return next.backward && find_pass(next) == pass;
}

void StepWalk::run_part(int first, int last) {
  for (now_.moment = first; now_.moment <= last; ++now_.moment) {
    const Moment& moment = chunk_of(now_).moment(now_.moment);
    passes_[to_index(now_.pass)].moment = now_.moment;
    listener_.computes(now_, moment.compute_ns, bytes_with(untracked_at(now_)));
    act();
  }
}

void StepWalk::act() {
  const Moment& moment = chunk_of(now_).moment(now_.moment);
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
  Pass& pass = passes_[to_index(now_.pass)];
  const std::vector<CachedBytes>& cached = chunk_of(pass).replays.cached;
  for (; pass.next_cached < cached.size() && cached[pass.next_cached].moment == now_.moment;
       ++pass.next_cached) {
    cached_bytes_ += cached[pass.next_cached].bytes - pass.cached;
    pass.cached = cached[pass.next_cached].bytes;
  }
}

void StepWalk::run_events(ItemEventKind first, ItemEventKind last) {
  for (const ItemEvent& event : chunk_of(now_).events_at(now_.moment)) {
    if (event.kind < first || event.kind > last) continue;
    const ItemRef what{now_.pass, event.item};
    switch (event.kind) {
      case ItemEventKind::kAllocated:
        set_hidden(what, 1);
        break;
      case ItemEventKind::kLastForwardUse:
        if (item(what).managed) set_hidden(what, 0);
        break;
      case ItemEventKind::kAnchored:
        add_to_device(what);
        if (item(what).part > 0) {
          start_shard(what);
        } else if (item(what).action == ActionKind::kOffload) {
          start_offload(what);
        }
        break;
      case ItemEventKind::kGivenUp:
        remove_from_device(what);
        break;
      case ItemEventKind::kFreed:
        give_up(what);
        break;
    }
  }
}

bool StepWalk::model_has(ItemRef what) const {
  return passes_[to_index(what.pass)].moment < item(what).model_until;
}

void StepWalk::set_hidden(ItemRef what, int hidden) {
  ItemState& now = state(what);
  hidden_bytes_ += (hidden - now.hidden) * item(what).bytes;
  now.hidden = static_cast<signed char>(hidden);
}

void StepWalk::add_to_device(ItemRef what) {
  state(what).on_device = true;
  managed_bytes_ += item(what).bytes;
  // What the model holds of an anchor is among the others' bytes too.
  set_hidden(what, item(what).anchor && model_has(what) ? -1 : 0);
}

void StepWalk::remove_from_device(ItemRef what) {
  state(what).on_device = false;
  managed_bytes_ -= item(what).bytes;
  set_hidden(what, !item(what).anchor && model_has(what) ? 1 : 0);
}

}  // namespace spillway
