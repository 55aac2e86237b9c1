#include "plan/recompute/replay_jobs.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// Simulates the recipes, buffers and replays of a session for one pass, without memory.
class ReplayWalk {
 public:
  ReplayWalk(const PassModel& model, const ChunkPlan& plan, std::int64_t cache_limit)
      : model_(model),
        chunk_(*model.chunk),
        plan_(plan),
        cache_limit_(cache_limit),
        values_(chunk_.values.size()),
        buffers_(chunk_.buffers.size()),
        calls_(chunk_.operators.size()),
        anchors_of_call_(chunk_.operators.size()) {
    const std::size_t ids = plan.decisions.size() + plan.anchors.size();
    result_.needed_until.assign(ids, -1);
    result_.given_up.assign(buffers_.size(), -1);
    result_.anchored.assign(plan.anchors.size(), -1);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      buffers_[i].managed = model.buffers[i].managed;
      buffers_[i].recomputed =
          buffers_[i].managed && plan.decisions[i].action.kind == ActionKind::kRecompute;
      recomputes_ = recomputes_ || buffers_[i].recomputed;
      result_.needed_until[i] = model.buffers[i].dropped;
    }
    for (std::size_t i = 0; i < plan.anchors.size(); ++i) {
      anchors_of_call_[to_index(plan.anchors[i].call)].push_back(static_cast<int>(i));
    }
  }

  [[nodiscard]] ReplayPlan run() && {
    if (!recomputes_ && plan_.anchors.empty()) return std::move(result_);
    for (now_ = 0; now_ <= model_.end; ++now_) {
      const Moment& moment = chunk_.timeline[to_index(now_)];
      switch (moment.kind) {
        case MomentKind::kCallEnds:
          call_ends(moment.index);
          break;
        case MomentKind::kSave:
          save(chunk_.sites[to_index(moment.index)].buffer);
          break;
        case MomentKind::kBackwardBegins:
          begin_backward();
          break;
        case MomentKind::kUnpack:
          unpack(moment.index);
          break;
        case MomentKind::kDrop:
          drop(moment.index);
          break;
        case MomentKind::kCallBegins:
        case MomentKind::kEnd:
          break;
      }
    }
    for (const ValueState& value : values_) {
      if (value.holders > 0 && value.holder >= 0) {
        result_.needed_until[to_index(value.holder)] = model_.end;
      }
    }
    return std::move(result_);
  }

 private:
  struct ValueState {
    int holders = 0;    // Recomputed buffers that start from it, and forward for an anchor.
    int holder = -1;    // The buffer or anchor that has it for them.
    bool kept = false;  // Autograd holds it, and the session does not move it.
    bool recomputed = false;
    int readers_left = 0;
    int uses = 0;        // In the job that runs.
    int made_in = -1;    // The last job that made it.
    int wanted_in = -1;  // The last job that must keep it.
    int read_in = -1;    // The last job that fetched it.
    int seen = -1;       // By the last search.
  };

  struct BufferState {
    bool managed = false;
    bool recomputed = false;
    bool saved = false;
    bool awaited = false;
    bool dropped = false;
    bool on_device = false;  // Recomputed.
    std::vector<int> roots;  // Values.
  };

  struct CallState {
    bool ended = false;
    bool counted = false;
    bool repeated = false;
    int seen = -1;
  };

  [[nodiscard]] const ValueProfile& profile_of(int value) const {
    return chunk_.values[to_index(value)];
  }
  [[nodiscard]] const OperatorProfile& call_at(int call) const {
    return chunk_.operators[to_index(call)];
  }
  [[nodiscard]] std::int64_t bytes_of(int value) const {
    return model_.value_bytes[to_index(value)];
  }

  /// The managed buffer by which autograd still holds a value; null if there is none.
  [[nodiscard]] const BufferState* saved_as(int value) const {
    const int id = profile_of(value).buffer;
    if (id < 0) return nullptr;
    const BufferState& buffer = buffers_[to_index(id)];
    return buffer.managed && buffer.saved && !buffer.dropped ? &buffer : nullptr;
  }

  // Forward.

  void call_ends(int call) {
    calls_[to_index(call)].ended = true;
    if (any_saved_) make_anchors(call);
    settle_awaited();
  }

  void make_anchors(int call) {
    for (const int anchor : anchors_of_call_[to_index(call)]) {
      const Anchor& wanted = plan_.anchors[to_index(anchor)];
      const int id = call_at(call).makes[to_index(wanted.output)];
      result_.anchored[to_index(anchor)] = now_;
      ValueState& value = values_[to_index(id)];
      value.holder = static_cast<int>(plan_.decisions.size()) + anchor;
      ++value.holders;
      anchored_values_.push_back(id);
    }
  }

  void save(int id) {
    if (!std::exchange(any_saved_, true)) {
      for (std::size_t call = 0; call < calls_.size(); ++call) {
        if (calls_[call].ended) make_anchors(static_cast<int>(call));
      }
    }
    BufferState& buffer = buffers_[to_index(id)];
    const int value = chunk_.buffers[to_index(id)].value;
    if (!buffer.managed && value >= 0) values_[to_index(value)].kept = true;
    if (buffer.saved) return;
    buffer.saved = true;
    if (buffer.recomputed) {
      if (value < 0 || profile_of(value).call < 0) refuse(id);
      buffer.awaited = true;
      awaited_.push_back(id);
    } else if (buffer.managed && value >= 0 && values_[to_index(value)].holders > 0) {
      values_[to_index(value)].holder = id;
    }
    settle_awaited();
  }

  [[noreturn]] void refuse(int id) const {
    const Position& position = chunk_.buffers[to_index(id)].position;
    throw InvalidArgument("simulate", "buffer " + std::to_string(id) + " (" + position.scope + " " +
                                          position.saver +
                                          ") is to be recomputed, but the operator that made it is "
                                          "unknown; keep or offload it");
  }

  void settle_awaited() {
    std::erase_if(awaited_, [this](int id) {
      const int maker = profile_of(chunk_.buffers[to_index(id)].value).call;
      if (!calls_[to_index(maker)].ended) return false;
      settle(id);
      return true;
    });
  }

  void settle(int id) {
    BufferState& buffer = buffers_[to_index(id)];
    buffer.awaited = false;
    result_.given_up[to_index(id)] = now_;
    find_roots(chunk_.buffers[to_index(id)].value, buffer.roots);
    for (const int root : buffer.roots) {
      ValueState& value = values_[to_index(root)];
      if (value.holders++ > 0) continue;
      const BufferState* const saved = saved_as(root);
      if (saved != nullptr && !saved->recomputed) value.holder = profile_of(root).buffer;
    }
  }

  /// Where the walk back from `target` ends.
  void find_roots(int target, std::vector<int>& roots) {
    ++search_;
    values_[to_index(target)].seen = search_;
    open_.clear();
    open_reads(profile_of(target).call);
    while (!open_.empty()) {
      const int id = open_.back();
      open_.pop_back();
      const BufferState* const saved = saved_as(id);
      const bool recomputed = saved != nullptr && saved->recomputed && !saved->awaited;
      if (recomputed && values_[to_index(id)].holders == 0) {
        for (const int root : saved->roots) {
          if (first_sight(root)) roots.push_back(root);
        }
      } else if (is_root(id, saved)) {
        roots.push_back(id);
      } else {
        open_reads(profile_of(id).call);
      }
    }
  }

  [[nodiscard]] bool is_root(int id, const BufferState* saved) const {
    const ValueState& value = values_[to_index(id)];
    if (value.holders > 0 || (saved != nullptr && !saved->recomputed)) return true;
    const int maker = profile_of(id).call;
    return maker < 0 || value.kept || !may_repeat(maker);
  }

  /// A plan that may not repeat collectives keeps their results.
  [[nodiscard]] bool may_repeat(int call) const {
    const std::string& reason = call_at(call).no_replay;
    return reason.empty() || reason == kCollective;
  }

  [[nodiscard]] bool first_sight(int value) {
    return std::exchange(values_[to_index(value)].seen, search_) != search_;
  }

  void open_reads(int call) {
    for (const int id : call_at(call).reads) {
      if (first_sight(id)) open_.push_back(id);
    }
  }

  // Backward.

  [[nodiscard]] bool is_there(int id) const {
    const ValueState& value = values_[to_index(id)];
    if (value.recomputed || value.holders > 0 || profile_of(id).call < 0) return true;
    const BufferState* const saved = saved_as(id);
    return saved != nullptr && (!saved->recomputed || saved->on_device);
  }

  void begin_backward() {
    for (std::size_t id = 0; id < buffers_.size(); ++id) {
      if (buffers_[id].recomputed && buffers_[id].saved) expect(chunk_.buffers[id].value);
    }
    for (const int anchored : std::exchange(anchored_values_, {})) release_root(anchored);
  }

  /// Counts the readers of what replays will make. If a call is counted, so are all calls it
  /// depends on.
  void expect(int target) {
    open_ = {profile_of(target).call};
    while (!open_.empty()) {
      const int call = open_.back();
      open_.pop_back();
      if (std::exchange(calls_[to_index(call)].counted, true)) continue;
      for (const int id : call_at(call).reads) {
        ++values_[to_index(id)].readers_left;
        const BufferState* const saved = saved_as(id);
        const bool stops = is_there(id) || (saved != nullptr && saved->recomputed);
        if (!stops) open_.push_back(profile_of(id).call);
      }
    }
  }

  void release_root(int root) {
    ValueState& value = values_[to_index(root)];
    if (--value.holders > 0 || value.holder < 0) return;
    const int holder = std::exchange(value.holder, -1);
    const bool anchor = to_index(holder) >= buffers_.size();
    if (anchor || buffers_[to_index(holder)].dropped) result_.needed_until[to_index(holder)] = now_;
  }

  void unpack(int at) {
    const int id = chunk_.unpack_order[to_index(at)];
    BufferState& buffer = buffers_[to_index(id)];
    if (!buffer.recomputed || !buffer.saved || buffer.on_device) return;
    buffer.on_device = true;
    if (now_ < model_.buffers[to_index(id)].last_forward_use)
      return;  // The model still references it.
    buffer.on_device = false;
    ReplayJob job;
    job.unpack = at;
    job.buffer = id;
    find_calls(chunk_.buffers[to_index(id)].value, job);
    find_results(job);
    find_inputs(job);
    repeat(job);
    result_.jobs.push_back(std::move(job));
  }

  void find_calls(int target, ReplayJob& job) {
    ++search_;
    open_ = {profile_of(target).call};
    while (!open_.empty()) {
      const int call = open_.back();
      open_.pop_back();
      if (std::exchange(calls_[to_index(call)].seen, search_) == search_) continue;
      job.calls.push_back(call);
      for (const int id : call_at(call).reads) {
        if (!is_there(id)) open_.push_back(profile_of(id).call);
      }
    }
    std::sort(job.calls.begin(), job.calls.end());
  }

  void find_results(ReplayJob& job) {
    const int number = static_cast<int>(result_.jobs.size());
    for (const int call : job.calls) {
      job.ns += model_.calls[to_index(call)].ns;
      for (const int id : call_at(call).reads) ++values_[to_index(id)].uses;
      for (const int id : call_at(call).makes) {
        ValueState& value = values_[to_index(id)];
        value.made_in = number;
        const BufferState* const saved = saved_as(id);
        if (saved == nullptr || !saved->recomputed || saved->on_device) continue;
        value.wanted_in = number;
        job.makes.push_back(profile_of(id).buffer);
      }
    }
  }

  void find_inputs(ReplayJob& job) {
    const int number = static_cast<int>(result_.jobs.size());
    for (const int call : job.calls) {
      for (const int id : call_at(call).reads) {
        ValueState& value = values_[to_index(id)];
        if (value.made_in == number || value.recomputed) continue;
        if (std::exchange(value.read_in, number) == number) continue;
        const BufferState* const saved = saved_as(id);
        const bool stored = saved != nullptr && !saved->recomputed;
        const int from = value.holder >= 0 ? value.holder : stored ? profile_of(id).buffer : -1;
        if (from >= 0) job.reads.push_back(from);
      }
    }
  }

  void repeat(ReplayJob& job) {
    const int number = static_cast<int>(result_.jobs.size());
    std::int64_t most = recomputed_bytes_;
    for (const int call : job.calls) {
      std::int64_t during =
          recomputed_bytes_ + static_cast<std::int64_t>(call_at(call).workspace.count());
      for (const int id : call_at(call).makes) during += bytes_of(id) - taken_over(call, id);
      most = std::max(most, during);
      for (const int id : call_at(call).makes) keep(id, number);
      finish_inputs(call, number);
    }
    trim(job, number);
    std::int64_t made = 0;
    for (const int id : job.makes) {
      const int value = chunk_.buffers[to_index(id)].value;
      made += bytes_of(value);
      set_recomputed(value, false);
      buffers_[to_index(id)].on_device = true;
    }
    job.transient_bytes = most - made;
    note_cached();
  }

  /// Bytes that need not be allocated for a result, because it reuses an input that is read for the
  /// last time.
  [[nodiscard]] std::int64_t taken_over(int call, int made) const {
    for (const int id : call_at(call).reads) {
      const ValueState& value = values_[to_index(id)];
      const bool changed_here = profile_of(id).overwritten && bytes_of(id) == bytes_of(made) &&
                                model_.last_read[to_index(id)] == model_.calls[to_index(call)].ends;
      const bool mine = calls_[to_index(call)].counted && !calls_[to_index(call)].repeated;
      if (changed_here && value.recomputed && value.uses <= 1 &&
          value.readers_left <= (mine ? 1 : 0)) {
        return bytes_of(made);
      }
    }
    return 0;
  }

  void keep(int id, int number) {
    const ValueState& value = values_[to_index(id)];
    if (value.wanted_in != number && value.readers_left == 0 && value.uses == 0) return;
    set_recomputed(id, true);
  }

  void set_recomputed(int id, bool recomputed) {
    bool& now = values_[to_index(id)].recomputed;
    if (now != recomputed) recomputed_bytes_ += recomputed ? bytes_of(id) : -bytes_of(id);
    now = recomputed;
  }

  void finish_inputs(int call, int number) {
    CallState& state = calls_[to_index(call)];
    const bool first = !std::exchange(state.repeated, true) && state.counted;
    for (const int id : call_at(call).reads) {
      ValueState& value = values_[to_index(id)];
      if (first) --value.readers_left;
      const int uses = --value.uses;
      if (value.readers_left == 0 && uses == 0 && value.wanted_in != number)
        set_recomputed(id, false);
    }
  }

  void trim(const ReplayJob& job, int number) {
    for (const int call : job.calls) {
      for (const int id : call_at(call).makes) {
        const ValueState& value = values_[to_index(id)];
        if (value.recomputed && value.wanted_in != number) cached_.push_back(id);
      }
    }
    std::int64_t bytes = 0;
    for (const int id : cached_) bytes += values_[to_index(id)].recomputed ? bytes_of(id) : 0;
    while (bytes > cache_limit_ && !cached_.empty()) {
      const int oldest = cached_.front();
      cached_.pop_front();
      if (!values_[to_index(oldest)].recomputed) continue;
      bytes -= bytes_of(oldest);
      set_recomputed(oldest, false);
    }
  }

  void drop(int id) {
    BufferState& buffer = buffers_[to_index(id)];
    buffer.dropped = true;
    const int value_id = chunk_.buffers[to_index(id)].value;
    if (!buffer.managed || value_id < 0) return;
    ValueState& value = values_[to_index(value_id)];
    if (!buffer.recomputed) {
      if (value.holder == id)
        result_.needed_until[to_index(id)] = -1;  // Until its values are released.
      return;
    }
    if (std::exchange(buffer.on_device, false) && value.readers_left > 0 && !value.recomputed) {
      set_recomputed(value_id, true);
      cached_.push_back(value_id);
      note_cached();
    }
    for (const int root : std::exchange(buffer.roots, {})) release_root(root);
  }

  void note_cached() {
    const bool same = result_.cached.empty() ? recomputed_bytes_ == 0
                                             : result_.cached.back().bytes == recomputed_bytes_;
    if (!same) result_.cached.push_back({now_, recomputed_bytes_});
  }

  const PassModel& model_;
  const ChunkProfile& chunk_;
  const ChunkPlan& plan_;
  std::int64_t cache_limit_;
  std::vector<ValueState> values_;
  std::vector<BufferState> buffers_;
  std::vector<CallState> calls_;
  std::vector<std::vector<int>> anchors_of_call_;
  std::vector<int> awaited_;
  std::vector<int> anchored_values_;
  std::deque<int> cached_;
  std::int64_t recomputed_bytes_ = 0;  // Of values that are no buffers' yet, or no longer.
  std::vector<int> open_;
  int search_ = -1;
  int now_ = 0;
  bool any_saved_ = false;
  bool recomputes_ = false;
  ReplayPlan result_;
};

}  // namespace

ReplayPlan replays_of(const PassModel& model, const ChunkPlan& plan, Bytes cache_limit) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t limit = std::min(cache_limit.count(), kMost);
  return ReplayWalk(model, plan, static_cast<std::int64_t>(limit)).run();
}

}  // namespace spillway
