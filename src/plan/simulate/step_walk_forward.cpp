#include <algorithm>

#include "plan/simulate/step_walk.hpp"
#include "spillway/core/index.hpp"

namespace spillway {

bool StepWalk::has_allowance() const { return !chunk_of(now_).plan->forward_allowance.empty(); }

void StepWalk::save(int site) {
  const int id = chunk_of(now_).model->chunk->sites[to_index(site)].buffer;
  const ItemRef what{now_.pass, id};
  if (item(what).managed && item(what).entered == now_.moment) {
    add_to_device(what);
    if (item(what).part > 0) {
      start_shard(what);
    } else if (item(what).action == ActionKind::kOffload) {
      start_offload(what);
    }
  }
  run_events(ItemEventKind::kAnchored, ItemEventKind::kFreed);
  std::optional<std::int64_t> most = listener_.saved(*this, now_, site);
  if (!most && has_allowance()) {
    most =
        static_cast<std::int64_t>(chunk_of(now_).plan->forward_allowance[to_index(site)].count());
  }
  while (most && managed_bytes_ > *most && window_bytes_ > 0) release_oldest();
  while (limits_.max_pending_release && window_bytes_ > *limits_.max_pending_release)
    release_oldest();
}

void StepWalk::start_offload(ItemRef what) {
  const std::int64_t bytes = item(what).bytes;
  const int number = passes_[to_index(now_.pass)].offloads++;
  if (tails_.empty() || number < tails_[to_index(now_.pass)]) {
    if (host_bytes_ + bytes > limits_.host) {
      found_no_room_ = true;  // It is kept then.
      return;
    }
    copy_out(what);
  }
  state(what).in_window = true;
  window_.push_back(what);
  window_bytes_ += bytes;
  if (!limits_.windows || has_allowance()) return;
  while (window_bytes_ > limits_.offload_window) release_oldest();
}

void StepWalk::copy_out(ItemRef what) {
  const std::int64_t bytes = item(what).bytes;
  state(what).copied = true;
  host_bytes_ += bytes;
  host_peak_ = std::max(host_peak_, host_bytes_);
  bytes_out_ += bytes;
  listener_.copies_out(now_, what, bytes);
}

void StepWalk::release_oldest() {
  while (!state(window_.front()).in_window) window_.pop_front();
  const ItemRef oldest = window_.front();
  window_.pop_front();
  window_bytes_ -= item(oldest).bytes;
  ItemState& now = state(oldest);
  now.in_window = false;
  if (!now.copied) copy_out(oldest);
  now.released = true;
  listener_.releases(now_, oldest);
  remove_from_device(oldest);
}

void StepWalk::take_from_window(ItemRef what) {
  state(what).in_window = false;
  window_bytes_ -= item(what).bytes;
}

}  // namespace spillway
