#include <algorithm>

#include "plan/simulate/step_walk.hpp"
#include "spillway/core/index.hpp"

namespace spillway {

void StepWalk::begin_backward() {
  close_forward();
  Pass& pass = passes_[to_index(now_.pass)];
  pass.backward_begun = true;
  if (to_index(now_.pass) + 1 == passes_.size()) {
    int staying = 0;
    for (const ItemState& item : pass.items) staying += item.in_window ? 1 : 0;
    if (staying > 0) found_tails_[to_index(now_.pass)] = pass.offloads - staying;
  }
  queue_reloads(now_.pass);
  release_parts_of_others();
  begin_first_gather(now_.pass);
  prefetch_gathers();
}

void StepWalk::queue_reloads(int number) {
  Pass& pass = passes_[to_index(number)];
  if (pass.reloads_queued) return;
  pass.reloads_queued = true;
  for (const int id : chunk_of(pass).reload_order) {
    const ItemRef what{number, id};
    if (state(what).in_window) {
      take_from_window(what);  // Its backward is near: it stays.
    } else if (state(what).released && !state(what).freed) {
      reloads_.push_back(what);
    }
  }
}

int StepWalk::next_backward() const {
  for (std::size_t step = step_ + 1; step < schedule_.size(); ++step) {
    if (!schedule_[step].backward) continue;
    const int next = find_pass(schedule_[step]);
    const bool waits = to_index(next) < passes_.size() && !passes_[to_index(next)].backward_begun;
    return waits ? next : -1;
  }
  return -1;
}

void StepWalk::queue_next_pass() {
  if (const int next = next_backward(); next >= 0) queue_reloads(next);
}

void StepWalk::unpack(int unpack) {
  const ItemRef what{now_.pass, chunk_of(now_).model->chunk->unpack_order[to_index(unpack)]};
  const bool caller_owned = chunk_of(now_).model->buffers[to_index(what.item)].caller_owned;
  if (!caller_owned && (!item(what).managed || item(what).entered < 0)) return;
  fetched_ = 0;
  begin_due_gathers(what);
  if (caller_owned) {
    // It is on the device.
  } else if (item(what).action != ActionKind::kRecompute) {
    make_available(what);
  } else if (!state(what).on_device) {
    Pass& pass = passes_[to_index(now_.pass)];
    const std::vector<ReplayJob>& jobs = chunk_of(now_).replays.jobs;
    if (pass.next_job < jobs.size() && jobs[pass.next_job].unpack == unpack) {
      repeat(jobs[pass.next_job++]);
    } else {
      add_to_device(what);  // The model still has it.
    }
  }
  std::optional<std::int64_t> most = listener_.unpacked(*this, now_, unpack, fetched_);
  const std::vector<Bytes>& allowance = chunk_of(now_).plan->backward_allowance;
  if (!most && has_allowance() && !allowance.empty()) {
    most = static_cast<std::int64_t>(allowance[to_index(unpack)].count());
  }
  prefetch(most);
}

void StepWalk::make_available(ItemRef what) {
  ItemState& now = state(what);
  if (now.sharded) return all_gather_buffer(what);
  if (!now.on_device) {
    if (model_has(what)) {
      add_to_device(what);
      now.ready = true;
    } else {
      fetched_ += item(what).bytes;
      start_reload(what);
    }
  }
  if (!now.reloading || now.ready) return;
  now.ready = true;
  listener_.fetches(now_, what);
}

void StepWalk::start_reload(ItemRef what) {
  add_to_device(what);
  state(what).reloading = true;
  bytes_back_ += item(what).bytes;
  listener_.copies_back(now_, what, item(what).bytes);
}

void StepWalk::repeat(const ReplayJob& job) {
  for (const int read : job.reads) make_available({now_.pass, read});
  // Both pieces around the moment had at least what is there now.
  const StepPosition after{now_.pass, now_.chunk, true, now_.moment + 1};
  const std::int64_t other = std::min(untracked_at(now_), untracked_at(after));
  std::int64_t made = 0;
  for (const int each : job.makes) made += item({now_.pass, each}).bytes;
  const std::int64_t cached = passes_[to_index(now_.pass)].cached;
  listener_.repeats(now_, job, bytes_with(other) - cached + made + job.transient_bytes);
  for (const int each : job.makes) add_to_device({now_.pass, each});
}

void StepWalk::prefetch(std::optional<std::int64_t> most) {
  bool any = start_reloads(most);
  if (reloads_.empty()) {
    queue_next_pass();
    any = start_reloads(most) || any;
  }
  if (any) listener_.hands_over();
}

bool StepWalk::start_reloads(std::optional<std::int64_t> most) {
  bool any = false;
  while (!reloads_.empty()) {
    const ItemRef next = reloads_.front();
    const std::int64_t bytes = item(next).bytes;
    const auto within = [&](std::int64_t limit) {
      return prefetched_bytes_ == 0 || prefetched_bytes_ + bytes <= limit;
    };
    const bool fits = most ? managed_bytes_ + bytes <= *most &&
                                 (!limits_.max_prefetch || within(*limits_.max_prefetch))
                           : within(limits_.prefetch_window);
    if (!fits) break;
    reloads_.pop_front();
    ItemState& now = state(next);
    if (now.freed || now.on_device) continue;
    if (model_has(next)) {
      add_to_device(next);
      now.ready = true;
      continue;
    }
    now.prefetched = true;
    prefetched_bytes_ += bytes;
    start_reload(next);
    any = true;
  }
  return any;
}

void StepWalk::give_up(ItemRef what) {
  ItemState& now = state(what);
  now.freed = true;
  if (now.in_window) take_from_window(what);
  if (now.prefetched) prefetched_bytes_ -= item(what).bytes;
  if (now.on_device && now.gathering) {
    managed_bytes_ -= item(what).whole;
    now.on_device = false;
    free_part(what);
  } else if (now.on_device) {
    remove_from_device(what);
  }
  set_hidden(what, 0);
  if (!now.copied || now.sharded) return;
  host_bytes_ -= item(what).bytes;
  if (!now.released && !now.reloading) listener_.gives_up(now_, what);
}

}  // namespace spillway
