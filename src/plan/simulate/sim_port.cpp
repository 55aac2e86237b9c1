#include "plan/simulate/sim_port.hpp"

#include <algorithm>
#include <utility>

namespace spillway {

SimPort::SimPort(const PassSchedule& schedule, StepListener& listener, std::int64_t host,
                 std::size_t passes)
    : schedule_(schedule), listener_(listener), host_limit_(host) {
  passes_.reserve(passes);
}

int SimPort::number_of(const PassStep& wanted) const {
  const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const SimPass& pass) {
    return pass.key.chunk == wanted.chunk && pass.key.micro_batch == wanted.micro_batch;
  });
  return static_cast<int>(found - passes_.begin());
}

SimPass* SimPort::find(const PassStep& wanted) {
  const std::size_t number = to_index(number_of(wanted));
  return number < passes_.size() ? &passes_[number] : nullptr;
}

SimPass& SimPort::begin_pass(const PassStep& key, const PlannedChunk& chunk) {
  close_forward();
  machine_.copy_held();
  SimPass& pass = passes_.emplace_back();
  pass.key = key;
  pass.chunk = &chunk;
  pass.number = static_cast<int>(passes_.size()) - 1;
  pass.items.resize(chunk.items.size());
  open_ = &pass;
  return pass;
}

void SimPort::enter(SimPass& pass, int id) {
  const PlannedItem& planned = pass.chunk->items[to_index(id)];
  SimBuffer& buffer = pass.items[to_index(id)];
  buffer.pass = &pass;
  buffer.id = id;
  buffer.footprint = planned.bytes;
  machine_.enter(buffer);
  if (planned.part > 0) {
    start_shard(buffer);
  } else if (planned.action == ActionKind::kOffload) {
    machine_.offload(buffer, &buffer);
  }
}

void SimPort::discard(SimBuffer& buffer) {
  // The call that makes it may still run when autograd has dropped it again.
  if (buffer.state != BufferState::kFreed) machine_.discard(buffer);
}

void SimPort::freed(SimPass& pass, int id) {
  SimBuffer& buffer = pass.items[to_index(id)];
  if (buffer.state != BufferState::kFreed) {
    const BufferState was = machine_.drop(buffer);
    if (buffer.shard != nullptr) shards_.drop(*buffer.shard, /*over=*/false);
    if (buffer.copied) {
      host_bytes_ -= item(buffer).bytes;
      if (is_copied_in_place(was)) listener_.gives_up(now, ref(buffer));
    }
  }
  set_hidden(pass, id, 0);
}

void SimPort::set_hidden(SimPass& pass, int id, int hidden) {
  SimBuffer& buffer = pass.items[to_index(id)];
  hidden_bytes_ += (hidden - buffer.hidden) * pass.chunk->items[to_index(id)].bytes;
  buffer.hidden = static_cast<signed char>(hidden);
}

void SimPort::entered(SimBuffer& buffer) {
  // Until it is gathered, the model may have the original besides.
  if (buffer.state == BufferState::kGathering) return;
  // What the model holds of an anchor is among the others' bytes too.
  const bool twice = item(buffer).anchor && model_has(*buffer.pass, buffer.id);
  set_hidden(*buffer.pass, buffer.id, twice ? -1 : 0);
}

void SimPort::left(SimBuffer& buffer) {
  const bool remains = !item(buffer).anchor && model_has(*buffer.pass, buffer.id);
  set_hidden(*buffer.pass, buffer.id, remains ? 1 : 0);
}

bool SimPort::take_host(std::int64_t bytes) {
  if (host_bytes_ + bytes > host_limit_) {
    found_no_room_ = true;
    return false;
  }
  host_bytes_ += bytes;
  host_peak_ = std::max(host_peak_, host_bytes_);
  bytes_out_ += bytes;
  return true;
}

bool SimPort::copy_out(SimBuffer& buffer) {
  const std::int64_t bytes = item(buffer).bytes;
  if (!take_host(bytes)) return false;
  buffer.copied = true;
  listener_.copies_out(now, ref(buffer), bytes);
  return true;
}

bool SimPort::release(SimBuffer& buffer) {
  buffer.released = true;
  listener_.releases(now, ref(buffer));
  return true;
}

void SimPort::reload(SimBuffer& buffer) {
  const std::int64_t bytes = item(buffer).bytes;
  bytes_back_ += bytes;
  listener_.copies_back(now, ref(buffer), bytes);
}

bool SimPort::prefetch(SimBuffer& buffer) {
  reload(buffer);
  return true;
}

void SimPort::wait(SimBuffer& buffer, bool first) {
  if (first) listener_.fetches(now, ref(buffer));
}

SimPass* SimPort::next_backward() {
  for (std::size_t at = step + 1; at < schedule_.size(); ++at) {
    if (!schedule_[at].backward) continue;
    SimPass* const next = find(schedule_[at]);
    return next != nullptr && !next->backward_begun ? next : nullptr;
  }
  return nullptr;
}

void SimPort::start_shard(SimBuffer& buffer) {
  const PlannedItem& planned = item(buffer);
  SimPass& pass = *buffer.pass;
  SimShard& shard = pass.sharded.emplace_back();
  shard.buffer = &buffer;
  shard.item = buffer.id;
  shard.size = planned.bytes;
  shard.part_size = planned.part;
  shard.gathered = planned.whole;
  buffer.shard = &shard;
  shards_.asked(shard);
  pass.asked.push_back(&shard);
  // The other ranks have normally answered when the next buffer is sharded.
  answer_shards(pass, 1);
}

void SimPort::answer_shards(SimPass& pass, std::size_t unanswered) {
  while (pass.asked.size() > unanswered) {
    SimShard* const shard = pass.asked.front();
    pass.asked.erase(pass.asked.begin());
    shards_.split(pass, shard, item(*shard->buffer).action == ActionKind::kOffload);
  }
}

void SimPort::close_forward() {
  SimPass* const pass = std::exchange(open_, nullptr);
  if (pass == nullptr) return;
  answer_shards(*pass, 0);
  shards_.order_gathers(*pass);
}

bool SimPort::copy_part_out(SimShard& shard) {
  if (!take_host(shard.part_size)) return false;
  shard.copied = true;
  listener_.copies_out(now, ref(*shard.buffer), shard.part_size);
  return true;
}

void SimPort::release_part(SimShard& shard) { listener_.releases(now, ref(*shard.buffer)); }

void SimPort::begin_gather(SimShard& shard) {
  const bool away = shard.part == PartState::kAway;
  bytes_gathered_ += shard.size;
  if (away) {
    bytes_back_ += shard.part_size;
    listener_.copies_back(now, ref(*shard.buffer), shard.part_size);
    listener_.hands_over();
  }
  listener_.gathers(now, ref(*shard.buffer), away);
}

void SimPort::end_gather(SimShard& shard) {
  listener_.has_gathered(now, ref(*shard.buffer));
  if (buffer_of(shard) != nullptr) set_hidden(*shard.buffer->pass, shard.item, 0);
}

void SimPort::free_part(SimShard& shard) {
  if (!std::exchange(shard.copied, false)) return;
  host_bytes_ -= shard.part_size;
}

}  // namespace spillway
