#include "plan/profile/pass_model.hpp"

#include <algorithm>
#include <string>

#include "spillway/core/error.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

std::int64_t handed_out(Bytes size, Bytes granularity) {
  const std::uint64_t step = std::max<std::uint64_t>(granularity.count(), 1);
  return static_cast<std::int64_t>((size.count() + step - 1) / step * step);
}

class Modeller {
 public:
  Modeller(const ChunkProfile& chunk, Bytes granularity) : chunk_(chunk) {
    model_.chunk = &chunk;
    model_.end = static_cast<int>(chunk.timeline.size()) - 1;
    model_.buffers.resize(chunk.buffers.size());
    model_.calls.resize(chunk.operators.size());
    model_.last_read.resize(chunk.values.size(), -1);
    model_.save_moment.resize(chunk.sites.size(), -1);
    model_.save_call.resize(chunk.sites.size(), -1);
    model_.unpack_moment.resize(chunk.unpack_order.size(), -1);
    for (const ValueProfile& value : chunk.values) {
      model_.value_bytes.push_back(handed_out(value.size, granularity));
    }
    for (const BufferProfile& buffer : chunk.buffers) {
      BufferLife& life = model_.buffers[to_index(buffer.id)];
      life.bytes = handed_out(buffer.size, granularity);
      life.allocated = life.saved = life.last_forward_use = life.dropped = -1;
      life.counted = is_step_memory(buffer.fixed);
      life.movable = buffer.fixed == FixedReason::kNone;
      life.caller_owned = buffer.fixed == FixedReason::kCallerOwned;
      life.managed = life.movable || buffer.fixed == FixedReason::kChangedLater ||
                     buffer.fixed == FixedReason::kOwnedElsewhere;
    }
  }

  [[nodiscard]] PassModel run() && {
    bool backward = false;
    for (int moment = 0; moment <= model_.end; ++moment) {
      const Moment& now = chunk_.timeline[to_index(moment)];
      since_begin_ += now.compute_ns;
      (backward ? model_.backward_ns : model_.forward_ns) += now.compute_ns;
      backward = backward || now.kind == MomentKind::kBackwardBegins;
      note(moment, now);
    }
    for (const BufferProfile& buffer : chunk_.buffers) complete(buffer);
    return std::move(model_);
  }

 private:
  void note(int moment, const Moment& now) {
    switch (now.kind) {
      case MomentKind::kCallBegins:
        model_.calls[to_index(now.index)].begins = moment;
        model_.calls[to_index(now.index)].ns = -since_begin_;
        running_.push_back(now.index);
        return;
      case MomentKind::kCallEnds:
        return call_ends(moment, now.index);
      case MomentKind::kSave:
        model_.save_moment[to_index(now.index)] = moment;
        if (!running_.empty()) model_.save_call[to_index(now.index)] = running_.back();
        first(model_.buffers[to_index(chunk_.sites[to_index(now.index)].buffer)].saved, moment);
        return;
      case MomentKind::kBackwardBegins:
        model_.backward_begins = moment;
        return;
      case MomentKind::kUnpack: {
        model_.unpack_moment[to_index(now.index)] = moment;
        BufferLife& life = model_.buffers[to_index(chunk_.unpack_order[to_index(now.index)])];
        first(life.first_need, moment);
        life.last_need = moment;
        return;
      }
      case MomentKind::kDrop:
        model_.buffers[to_index(now.index)].dropped = moment;
        return;
      case MomentKind::kEnd:
        return;
    }
  }

  void call_ends(int moment, int number) {
    CallLife& call = model_.calls[to_index(number)];
    call.ends = moment;
    call.ns += since_begin_;
    std::erase(running_, number);
    const OperatorProfile& profile = chunk_.operators[to_index(number)];
    for (const int value : profile.makes) {
      model_.last_read[to_index(value)] = std::max(model_.last_read[to_index(value)], moment);
    }
    for (const int value : profile.reads) {
      model_.last_read[to_index(value)] = std::max(model_.last_read[to_index(value)], moment);
    }
  }

  static void first(int& moment, int now) {
    if (moment < 0) moment = now;
  }

  void complete(const BufferProfile& buffer) {
    BufferLife& life = model_.buffers[to_index(buffer.id)];
    if (life.dropped < 0) life.dropped = model_.end;
    if (life.saved < 0) life.saved = 0;
    const int maker = buffer.value < 0 ? -1 : chunk_.values[to_index(buffer.value)].call;
    life.allocated =
        maker < 0 ? life.saved : std::min(life.saved, model_.calls[to_index(maker)].ends);
    if (life.allocated < 0) life.allocated = life.saved;
    life.last_forward_use = buffer.last_forward_use < 0 ? life.dropped : buffer.last_forward_use;
  }

  const ChunkProfile& chunk_;
  PassModel model_;
  std::int64_t since_begin_ = 0;
  std::vector<int> running_;  // Calls.
};

}  // namespace

PassModel model_of(const ChunkProfile& chunk, Bytes granularity) {
  if (chunk.timeline.empty()) {
    throw InvalidArgument("model", "chunk " + std::to_string(chunk.chunk) +
                                       " of the profile has no timeline; profile it again with "
                                       "`spillway profile`");
  }
  return Modeller(chunk, granularity).run();
}

}  // namespace spillway
