#include "plan/solve/milp_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

constexpr double kUnbounded = LinearModel::kUnbounded;
constexpr double kMebibyte = 1 << 20;
constexpr double kMillisecond = 1e6;
/// A moment before all of a slot's.
constexpr int kAtOnce = -1;
/// The weight of the secondary objective relative to the primary one.
constexpr double kSecond = 1e-4;

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / kMebibyte; }

double to_ms(std::int64_t ns) { return static_cast<double>(ns) / kMillisecond; }

/// MiB a millisecond.
double rate(double bytes_per_second) { return bytes_per_second / kMebibyte / 1e3; }

/// How much less of one way the link carries for each byte that goes the other way: at most so much
/// that the other way alone would take all of it.
double interference(double alone, double both, double other_alone, double other_both) {
  if (both <= 0 || other_both <= 0 || other_alone <= 0) return 0;
  return std::clamp((alone - both) / other_both, 0.0, alone / other_alone);
}

}  // namespace

MilpModel::MilpModel(const std::vector<ChunkSpace>& spaces, const Slots& slots,
                     const PassSchedule& schedule, const LinkSpeed& link,
                     const MilpOptions& options)
    : spaces_(spaces),
      slots_(slots),
      link_{link.out * options.link,
            link.back * options.link,
            link.out_with_back * options.link,
            link.back_with_out * options.link,
            link.slows_out,
            link.slows_back},
      options_(options),
      events_(to_index(slots.count()) + 1) {
  if (options.budget) {
    const double most = mebibytes(*options.budget);
    budget_ = linear_.add_column(most, most);
  } else {
    budget_ = linear_.add_column(0, kUnbounded, 1);
  }
  find_passes(schedule);
  for (std::size_t chunk = 0; chunk < spaces.size(); ++chunk) {
    const auto pass = std::find_if(passes_.begin(), passes_.end(),
                                   [chunk](const Pass& each) { return each.chunk == chunk; });
    std::vector<int> slot_of_moment(spaces[chunk].chunk->timeline.size());
    for (std::size_t i = 0; i < slot_of_moment.size() && pass != passes_.end(); ++i) {
      slot_of_moment[i] = slot_after(*pass, static_cast<int>(i));
    }
    columns_.push_back(add_columns(spaces[chunk], slot_of_moment, linear_));
  }
  for (const Pass& pass : passes_) {
    const ChunkSpace& space = spaces[pass.chunk];
    for (std::size_t id = 0; id < space.buffers.size(); ++id) add_buffer(pass, id);
    for (std::size_t id = 0; id < space.values.size(); ++id) add_anchor(pass, id);
    for (std::size_t call = 0; call < space.windows.size(); ++call) add_replay(pass, call);
  }
  State state;
  for (int slot = 0; slot < slots.count(); ++slot) add_slot(slot, state);
  if (options.most_ns) {
    Terms all;
    for (const int duration : durations_) all.push_back({duration, 1});
    linear_.add_row(-kUnbounded, to_ms(*options.most_ns), all);
  }
}

void MilpModel::find_passes(const PassSchedule& schedule) {
  std::map<std::pair<int, int>, std::size_t> known;
  for (std::size_t step = 0; step < schedule.size(); ++step) {
    const std::pair<int, int> key = {schedule[step].chunk, schedule[step].micro_batch};
    if (schedule[step].backward) {
      passes_[known.at(key)].backward = static_cast<int>(step);
      continue;
    }
    known[key] = passes_.size();
    const auto space = std::find_if(spaces_.begin(), spaces_.end(), [&](const ChunkSpace& each) {
      return each.chunk->chunk == schedule[step].chunk;
    });
    passes_.push_back(
        {static_cast<std::size_t>(space - spaces_.begin()), static_cast<int>(step), 0});
  }
  // Waits at a moment between two slots count for the first of them.
  first_back_ = slots_.count();
  for (const Pass& pass : passes_) {
    const PassModel& model = spaces_[pass.chunk].model;
    for (const int moment : model.unpack_moment) {
      first_back_ = std::min(first_back_, slots_.before(pass.backward, moment));
    }
    for (const int moment : model.save_moment) {
      last_out_ = std::max(last_out_, slots_.before(pass.forward, moment));
    }
  }
}

int MilpModel::slot_after(const Pass& pass, int moment) const {
  const bool forward = moment < spaces_[pass.chunk].model.backward_begins;
  return slots_.after(forward ? pass.forward : pass.backward, moment);
}

void MilpModel::change(const Pass& pass, int moment, std::int64_t bytes, int column,
                       double factor) {
  const int slot = slot_after(pass, moment);
  const bool here = slot < slots_.count() &&
                    (slots_[slot].step == pass.forward || slots_[slot].step == pass.backward);
  events_[to_index(slot)].memory.push_back(
      {here ? moment : kAtOnce, {column, factor * mebibytes(bytes)}});
}

void MilpModel::enter(const Pass& pass, int made, int last_forward_use, std::int64_t bytes,
                      int column) {
  int slot = slot_after(pass, optimistic() ? made : last_forward_use);
  const bool in_the_middle = slot < slots_.count() && slots_[slot].first <= last_forward_use;
  if (!optimistic() && in_the_middle) ++slot;
  events_[to_index(std::min(slot, slots_.count()))].enters.push_back({column, mebibytes(bytes)});
}

void MilpModel::due(const Pass& pass, int moment, std::int64_t bytes, int column, double factor) {
  const int slot = slot_after(pass, moment);
  if (slot >= slots_.count()) return;
  const bool in_the_middle = slots_[slot].first <= moment;
  Terms& terms = optimistic() && in_the_middle ? events_[to_index(slot)].due_at_end
                                               : events_[to_index(slot)].due_at_start;
  terms.push_back({column, factor * mebibytes(bytes)});
}

void MilpModel::add_buffer(const Pass& pass, std::size_t id) {
  const BufferLife& life = spaces_[pass.chunk].model.buffers[id];
  const ChunkColumns& columns = columns_[pass.chunk];
  if (!life.counted || life.bytes == 0) return;
  const int last_forward_use = std::max(life.last_forward_use, life.saved);
  const bool needed = life.first_need >= 0;
  if (needed && last_forward_use >= life.first_need) return;
  if (columns.offload[id] >= 0) add_offload(pass, id);
  const int recompute = columns.recompute[id];
  if (recompute < 0 || last_forward_use >= life.dropped) return;
  change(pass, last_forward_use, life.bytes, recompute, -1);
  const int back = needed ? life.first_need : life.dropped;
  change(pass, back, life.bytes, recompute, 1);
  int before = -1;
  for (const Pull& pull : columns.recompute_pulls[id]) {
    change(pass, pull.moment, life.bytes, pull.column, 1);
    if (before >= 0) change(pass, pull.moment, life.bytes, before, -1);
    before = pull.column;
  }
  if (before >= 0) change(pass, back, life.bytes, before, -1);
}

void MilpModel::add_offload(const Pass& pass, std::size_t id) {
  const BufferLife& life = spaces_[pass.chunk].model.buffers[id];
  const int column = columns_[pass.chunk].offload[id];
  enter(pass, life.saved, std::max(life.last_forward_use, life.saved), life.bytes, column);
  events_[to_index(slot_after(pass, life.dropped))].freed.push_back(
      {column, mebibytes(life.bytes)});
  if (life.first_need < 0) {
    change(pass, life.dropped, life.bytes, column, 1);
    return;
  }
  int before = -1;
  for (const Pull& pull : columns_[pass.chunk].offload_pulls[id]) {
    due(pass, pull.moment, life.bytes, pull.column, 1);
    if (before >= 0) due(pass, pull.moment, life.bytes, before, -1);
    before = pull.column;
  }
  due(pass, life.first_need, life.bytes, column, 1);
  if (before >= 0) due(pass, life.first_need, life.bytes, before, -1);
}

void MilpModel::add_anchor(const Pass& pass, std::size_t id) {
  const ChunkSpace& space = spaces_[pass.chunk];
  const int hold = columns_[pass.chunk].hold[id];
  if (hold < 0) return;
  const CallWindow& readers = columns_[pass.chunk].readers[id];
  const std::int64_t bytes = space.model.value_bytes[id];
  const int last_forward_use = std::max(space.model.last_read[id], 0);
  change(pass, last_forward_use, bytes, hold, 1);
  change(pass, optimistic() ? readers.earliest : readers.released, bytes, hold, -1);
  const int offload = columns_[pass.chunk].offload_anchor[id];
  if (offload < 0) return;
  const int made = space.model.calls[to_index(space.chunk->values[id].call)].ends;
  enter(pass, std::max(made, 0), last_forward_use, bytes, offload);
  const int freed = optimistic() ? readers.earliest : readers.released;
  events_[to_index(slot_after(pass, freed))].freed.push_back({offload, mebibytes(bytes)});
  int before = -1;
  for (const Pull& pull : columns_[pass.chunk].anchor_pulls[id]) {
    due(pass, pull.moment, bytes, pull.column, 1);
    if (before >= 0) due(pass, pull.moment, bytes, before, -1);
    before = pull.column;
  }
}

void MilpModel::add_replay(const Pass& pass, std::size_t call) {
  const int column = columns_[pass.chunk].replay[call];
  if (column < 0) return;
  const CallWindow& window = spaces_[pass.chunk].windows[call];
  const double ms = to_ms(spaces_[pass.chunk].replay_ns[call]);
  const int last = std::min(slot_after(pass, window.latest), slots_.count() - 1);
  events_[to_index(last)].replays.push_back({column, ms});
  for (int slot = slot_after(pass, window.earliest); slot < last; ++slot) {
    events_[to_index(slot)].may_come_ahead.push_back({column, ms});
  }
}

void MilpModel::add_slot(int slot, State& state) {
  const SlotEvents& events = events_[to_index(slot)];
  const double cost = optimistic() ? 0 : kSecond / 1e3;
  const int out = linear_.add_column(0, slot > last_out_ ? 0 : kUnbounded, cost);
  const int back = slot < first_back_ ? -1 : linear_.add_column(0, kUnbounded);
  add_time(slot, state, out, back);
  add_link(slot, out, back);

  const int pool = linear_.add_column(0, kUnbounded);
  Terms terms = {{pool, 1}, {out, 1}};
  if (state.pool >= 0) terms.push_back({state.pool, -1});
  for (const auto& term : events.enters) terms.push_back({term.column, -term.factor});
  linear_.add_row(0, 0, terms);
  state.pool = pool;

  add_host(slot, state, out, back);

  if (back >= 0) {
    const int prefetched = linear_.add_column(0, kUnbounded);
    terms = {{prefetched, 1}, {back, -1}};
    if (state.prefetched >= 0) terms.push_back({state.prefetched, -1});
    for (const auto& term : events.due_at_end) terms.push_back(term);
    for (const auto& term : events_[to_index(slot) + 1].due_at_start) terms.push_back(term);
    linear_.add_row(0, 0, terms);
    state.prefetched = prefetched;
  }
  add_memory(slot, state, out, back);
}

/// Only what was copied out can be reloaded. Its host memory is freed when it is dropped, not
/// earlier.
void MilpModel::add_host(int slot, State& state, int out, int back) {
  const int away = linear_.add_column(0, kUnbounded);
  Terms terms = {{away, 1}, {out, -1}};
  if (back >= 0) terms.push_back({back, 1});
  if (state.away >= 0) terms.push_back({state.away, -1});
  linear_.add_row(0, 0, terms);
  state.away = away;
  if (!options_.host) return;

  const int host = linear_.add_column(-kUnbounded, mebibytes(*options_.host));
  terms = {{host, 1}, {out, -1}};
  if (state.host >= 0) terms.push_back({state.host, -1});
  for (const auto& term : events_[to_index(slot)].freed) terms.push_back(term);
  linear_.add_row(0, 0, terms);
  state.host = host;
}

/// Of the time of a copy compute loses slows / (1 + slows), and of that of two at once the same of
/// their sum: at least so much of each, even if the device stands still for a part of it, which
/// takes longer.
MilpModel::Terms MilpModel::slowing(int out, int back) const {
  const double slows_out = link_.slows_out.value_or(0);
  const double slows_back = link_.slows_back.value_or(0);
  const double times = 1 + slows_out + slows_back;
  Terms terms;
  if (slows_out > 0 && link_.out > 0) terms.push_back({out, -slows_out / times / rate(link_.out)});
  if (back >= 0 && slows_back > 0 && link_.back > 0) {
    terms.push_back({back, -slows_back / times / rate(link_.back)});
  }
  return terms;
}

void MilpModel::add_time(int slot, State& state, int out, int back) {
  const SlotEvents& events = events_[to_index(slot)];
  const double compute = to_ms(slots_[slot].ns);
  const double second = optimistic() ? 0 : kSecond;
  const int duration = linear_.add_column(compute, kUnbounded, options_.budget ? 1.0 : second);
  durations_.push_back(duration);
  Terms terms = slowing(out, back);
  if (terms.empty() && events.replays.empty() && events.may_come_ahead.empty() && state.early < 0) {
    return;
  }
  terms.push_back({duration, 1});
  for (const auto& term : events.replays) terms.push_back({term.column, -term.factor});
  if (state.early >= 0) terms.push_back({state.early, 1});
  state.early = -1;
  if (!events.may_come_ahead.empty()) {
    state.early = linear_.add_column(0, kUnbounded);
    Terms most = {{state.early, 1}};
    for (const auto& term : events.may_come_ahead) most.push_back({term.column, -term.factor});
    linear_.add_row(-kUnbounded, 0, most);
    terms.push_back({state.early, -1});
  }
  linear_.add_row(compute, kUnbounded, terms);
}

void MilpModel::add_link(int slot, int out, int back) {
  const int duration = durations_[to_index(slot)];
  Terms outward = {{out, 1}, {duration, -rate(link_.out)}};
  if (back >= 0) {
    outward.push_back(
        {back, interference(link_.out, link_.out_with_back, link_.back, link_.back_with_out)});
    linear_.add_row(
        -kUnbounded, 0,
        {{back, 1},
         {duration, -rate(link_.back)},
         {out, interference(link_.back, link_.back_with_out, link_.out, link_.out_with_back)}});
  }
  linear_.add_row(-kUnbounded, 0, outward);
}

void MilpModel::add_memory(int slot, State& state, int out, int back) {
  const Slot& here = slots_[slot];
  const std::vector<Change>& changes = events_[to_index(slot)].memory;
  const double reserve = options_.reserve.empty() ? 0 : mebibytes(options_.reserve[to_index(slot)]);
  // At the piece `row`, and after the last one.
  for (std::size_t i = 0; i <= here.rows.size(); ++i) {
    const bool all = i == here.rows.size();
    Terms terms;
    if (state.memory >= 0) terms.push_back({state.memory, 1});
    for (const Change& change : changes) {
      if (all || change.moment < here.rows[i].piece) terms.push_back(change.term);
    }
    if (all || optimistic()) terms.push_back({out, -1});
    if (back >= 0 && (all || !optimistic())) terms.push_back({back, 1});
    if (all) {
      state.memory = linear_.add_column(-kUnbounded, kUnbounded);
      terms.push_back({state.memory, -1});
      linear_.add_row(0, 0, terms);
    } else {
      terms.push_back({budget_, -1});
      linear_.add_row(-kUnbounded, -mebibytes(here.rows[i].kept) - reserve, terms);
    }
  }
}

Choice MilpModel::choice(const std::vector<double>& solution) const {
  const auto chosen = [&solution](int column) {
    return column >= 0 && solution[to_index(column)] > 0.5;
  };
  Choice choice;
  for (std::size_t chunk = 0; chunk < spaces_.size(); ++chunk) {
    const ChunkColumns& columns = columns_[chunk];
    ChunkChoice chosen_here = choose_everywhere(spaces_[chunk], ActionKind::kKeep);
    for (std::size_t id = 0; id < columns.offload.size(); ++id) {
      if (chosen(columns.offload[id])) chosen_here.buffers[id] = ActionKind::kOffload;
      if (chosen(columns.recompute[id])) chosen_here.buffers[id] = ActionKind::kRecompute;
    }
    for (std::size_t id = 0; id < columns.hold.size(); ++id) {
      const int call = spaces_[chunk].chunk->values[id].call;
      if (chosen(columns.hold[id])) {
        chosen_here.values[id] =
            chosen(columns.offload_anchor[id]) ? Request::kOffload : Request::kKeep;
      } else if (call >= 0 && chosen(columns.replay[to_index(call)])) {
        chosen_here.values[id] = Request::kReplay;
      }
    }
    choice.push_back(std::move(chosen_here));
  }
  return choice;
}

std::int64_t MilpModel::nanoseconds(double objective) const {
  return static_cast<std::int64_t>(std::floor(objective * kMillisecond));
}

std::int64_t MilpModel::bytes(double objective) const {
  return static_cast<std::int64_t>(std::floor(objective * kMebibyte));
}

}  // namespace spillway
