#include <algorithm>
#include <limits>

#include "plan/simulate/step_walk.hpp"
#include "spillway/core/index.hpp"

namespace spillway {

void StepLimits::set_shard_windows(const Limits& limits) {
  const auto bytes = [](std::optional<Bytes> limit) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
    return static_cast<std::int64_t>(std::min(limit.value_or(kDefaultWindow).count(), kMost));
  };
  shard_offload_window = bytes(limits.offload_window);
  shard_prefetch_window = bytes(limits.prefetch_window);
}

void StepWalk::start_shard(ItemRef what) {
  state(what).part_here = true;
  managed_bytes_ += item(what).part;
  passes_[to_index(what.pass)].asked.push_back(what.item);
  shard_answered(what.pass, 1);
}

void StepWalk::shard_answered(int number, std::size_t unanswered) {
  Pass& pass = passes_[to_index(number)];
  while (pass.asked.size() > unanswered) {
    const ItemRef what{number, pass.asked.front()};
    pass.asked.erase(pass.asked.begin());
    pass.shards.push_back(what.item);
    state(what).sharded = true;
    if (state(what).on_device) remove_from_device(what);
    if (item(what).action == ActionKind::kOffload) offload_part(what);
  }
}

void StepWalk::offload_part(ItemRef what) {
  const std::int64_t bytes = item(what).part;
  if (host_bytes_ + bytes > limits_.host) {
    found_no_room_ = true;
    return;
  }
  state(what).copied = true;
  host_bytes_ += bytes;
  host_peak_ = std::max(host_peak_, host_bytes_);
  bytes_out_ += bytes;
  listener_.copies_out(now_, what, bytes);
  state(what).part_leaves = true;
  part_window_.push_back(what);
  part_window_bytes_ += bytes;
  while (part_window_bytes_ > limits_.shard_offload_window) {
    const ItemRef oldest = part_window_.front();
    part_window_.pop_front();
    if (state(oldest).part_leaves) release_part(oldest);
  }
}

void StepWalk::release_part(ItemRef what) {
  state(what).part_leaves = false;
  part_window_bytes_ -= item(what).part;
  state(what).released = true;
  listener_.releases(now_, what);
  state(what).part_here = false;
  managed_bytes_ -= item(what).part;
}

void StepWalk::release_parts_of_others() {
  // The newest first, as sessions do.
  for (std::size_t i = part_window_.size(); i-- > 0;) {
    const ItemRef what = part_window_[i];
    if (what.pass != now_.pass && state(what).part_leaves) release_part(what);
  }
}

void StepWalk::close_forward() {
  if (open_ < 0) return;
  shard_answered(open_, 0);
  Pass& pass = passes_[to_index(open_)];
  const std::vector<int>& positions = chunk_of(pass).gathers.position;
  std::sort(pass.shards.begin(), pass.shards.end(),
            [&](int a, int b) { return positions[to_index(a)] < positions[to_index(b)]; });
  open_ = -1;
}

void StepWalk::all_gather_buffer(ItemRef what) {
  Pass& pass = passes_[to_index(what.pass)];
  if (state(what).whole) return;
  const auto found = std::find(pass.shards.begin(), pass.shards.end(), what.item);
  const auto number = static_cast<std::size_t>(found - pass.shards.begin());
  while (pass.gathers_begun <= number) begin_gather(what.pass);
  pass.gathers_wanted = std::max(pass.gathers_wanted, number + 1);
  begin_due_gathers(what);
  prefetch_gathers();
  end_gather(what);
}

void StepWalk::prefetch_gathers() {
  std::int64_t prefetched = 0;
  begin_some_gathers(now_.pass, prefetched);
  const Pass& pass = passes_[to_index(now_.pass)];
  if (pass.gathers_begun < pass.shards.size()) return;
  if (const int next = next_backward(); next >= 0) begin_some_gathers(next, prefetched);
}

void StepWalk::begin_some_gathers(int number, std::int64_t& prefetched) {
  Pass& pass = passes_[to_index(number)];
  for (std::size_t i = pass.gathers_wanted; i < pass.gathers_begun; ++i) {
    prefetched += item({number, pass.shards[i]}).bytes;
  }
  while (pass.gathers_begun < pass.shards.size()) {
    const std::int64_t bytes = item({number, pass.shards[pass.gathers_begun]}).bytes;
    if (prefetched + bytes > limits_.shard_prefetch_window) return;
    begin_gather(number);
    prefetched += bytes;
  }
}

void StepWalk::begin_first_gather(int number) {
  const Pass& pass = passes_[to_index(number)];
  if (pass.gathers_begun == 0 && !pass.shards.empty()) begin_gather(number);
}

void StepWalk::begin_due_gathers(ItemRef what) {
  const Pass& pass = passes_[to_index(what.pass)];
  const GatherOrder& order = chunk_of(pass).gathers;
  const int due = order.due[to_index(what.item)];
  if (due == 0 || pass.shards.empty()) return;
  while (pass.gathers_begun < pass.shards.size() &&
         order.position[to_index(pass.shards[pass.gathers_begun])] <= due) {
    begin_gather(what.pass);
  }
  if (to_index(due) <= order.position.size()) return;
  if (const int next = next_backward(); next >= 0) begin_first_gather(next);
}

void StepWalk::begin_gather(int number) {
  Pass& pass = passes_[to_index(number)];
  const ItemRef what{number, pass.shards[pass.gathers_begun++]};
  ItemState& now = state(what);
  now.gathering = true;
  now.on_device = true;
  managed_bytes_ += item(what).whole;
  bytes_gathered_ += item(what).bytes;
  const bool away = !now.part_here;
  if (away) {
    now.part_here = true;
    managed_bytes_ += item(what).part;
    bytes_back_ += item(what).part;
    listener_.copies_back(now_, what, item(what).part);
    listener_.hands_over();
  }
  listener_.gathers(now_, what, away);
  if (!now.freed) return;
  end_gather(what);
  managed_bytes_ -= item(what).whole;
  now.on_device = false;
}

void StepWalk::end_gather(ItemRef what) {
  ItemState& now = state(what);
  if (now.whole) return;
  now.whole = true;
  now.ready = true;
  listener_.has_gathered(now_, what);
  free_part(what);
}

void StepWalk::free_part(ItemRef what) {
  ItemState& now = state(what);
  if (now.part_leaves) {
    now.part_leaves = false;
    part_window_bytes_ -= item(what).part;
  }
  if (now.part_here) managed_bytes_ -= item(what).part;
  now.part_here = false;
  if (now.copied) host_bytes_ -= item(what).part;
  now.copied = false;
}

}  // namespace spillway
