#include "plan/timed_step.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway {
namespace {

std::size_t place_in(int index) { return static_cast<std::size_t>(index); }

std::int64_t whole(double ns) { return std::llround(ns); }

}  // namespace

TimedStep::TimedStep(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                     const LinkSpeed& link, bool trace)
    : chunks_(chunks), link_(link), trace_(trace) {
  for (const PassStep& step : schedule) {
    if (!step.backward) passes_.push_back(step);
  }
  for (auto& groups : groups_) groups.resize(passes_.size());
}

void TimedStep::computes(const StepPlace& place, std::int64_t ns, std::int64_t bytes) {
  const double begin = now_ns_;
  now_ns_ += static_cast<double>(ns);
  hold(place, bytes);
  if (!trace_) return;
  result_.memory.push_back({whole(begin), bytes});
  if (ns > 0) {
    span(place.backward ? SimulatedWork::kBackward : SimulatedWork::kForward, place, begin, -1);
  }
}

void TimedStep::repeats(const StepPlace& place, const ReplayJob& job, std::int64_t bytes) {
  const double begin = now_ns_;
  now_ns_ += static_cast<double>(job.ns);
  result_.replay_ns += job.ns;
  hold(place, bytes);
  if (!trace_) return;
  result_.memory.push_back({whole(begin), bytes});
  span(SimulatedWork::kReplay, place, begin, job.buffer);
}

void TimedStep::hold(const StepPlace& place, std::int64_t bytes) {
  if (std::exchange(any_bytes_, true) && bytes <= most_bytes_) return;
  most_bytes_ = bytes;
  peak_ = place;
}

int& TimedStep::group_of(SimulatedLink::Direction direction, ItemRef what) {
  std::vector<int>& groups = groups_[direction][place_in(what.pass)];
  if (groups.size() <= place_in(what.item)) groups.resize(place_in(what.item) + 1, -1);
  return groups[place_in(what.item)];
}

void TimedStep::copies_out(const StepPlace& place, ItemRef what, std::int64_t bytes) {
  const int group = link_.add(SimulatedLink::kOut, bytes, now_ns_);
  group_of(SimulatedLink::kOut, what) = group;
  if (trace_) copies_[SimulatedLink::kOut].push_back({what, place.moment, group, bytes});
}

void TimedStep::releases(const StepPlace& place, ItemRef what) {
  const double end = link_.end_of(SimulatedLink::kOut, group_of(SimulatedLink::kOut, what));
  wait(place, what, end, result_.waits.release_ns);
}

void TimedStep::gives_up(const StepPlace& place, ItemRef what) {
  const int group = group_of(SimulatedLink::kOut, what);
  const PlannedChunk& chunk = chunks_[place_in(place.chunk)];
  const std::int64_t bytes = chunk.items[place_in(what.item)].bytes;
  if (link_.remove(SimulatedLink::kOut, group, bytes)) {
    std::erase_if(copies_[SimulatedLink::kOut], [&](const Copy& copy) {
      return copy.what.pass == what.pass && copy.what.item == what.item;
    });
    return;
  }
  wait(place, what, link_.end_of(SimulatedLink::kOut, group), result_.waits.in_place_ns);
}

void TimedStep::copies_back(const StepPlace& place, ItemRef what, std::int64_t bytes) {
  const int out = group_of(SimulatedLink::kOut, what);
  const int group = link_.add(SimulatedLink::kBack, bytes, now_ns_, out);
  group_of(SimulatedLink::kBack, what) = group;
  if (trace_) copies_[SimulatedLink::kBack].push_back({what, place.moment, group, bytes});
}

void TimedStep::fetches(const StepPlace& place, ItemRef what) {
  const double end = link_.end_of(SimulatedLink::kBack, group_of(SimulatedLink::kBack, what));
  wait(place, what, end, result_.waits.reload_ns);
}

void TimedStep::hands_over() { link_.hand_over(); }

void TimedStep::wait(const StepPlace& place, ItemRef what, double until, std::int64_t& total) {
  if (until <= now_ns_) return;
  const double begin = std::exchange(now_ns_, until);
  total += whole(until) - whole(begin);
  if (trace_) span(SimulatedWork::kWait, place, begin, what.item);
}

PassStep TimedStep::step_of(int pass, bool backward) const {
  PassStep step = passes_[place_in(pass)];
  step.backward = backward;
  return step;
}

void TimedStep::span(SimulatedWork work, const StepPlace& place, double begin, int buffer) {
  result_.spans.push_back({SimulatedStream::kCompute, work, whole(begin), whole(now_ns_),
                           step_of(place.pass, place.backward), buffer, place.moment});
}

/// Copies of one group follow each other, each as long as its share of the bytes.
void TimedStep::add_copies(SimulatedLink::Direction direction) {
  const bool back = direction == SimulatedLink::kBack;
  const std::vector<SimulatedLink::Group>& groups = link_.groups(direction);
  int last_group = -1;
  double done = 0;
  for (const Copy& copy : copies_[direction]) {
    if (std::exchange(last_group, copy.group) != copy.group) done = 0;
    const SimulatedLink::Group& group = groups[place_in(copy.group)];
    const auto at = [&](double bytes) {
      const double share = group.bytes > 0 ? bytes / group.bytes : 1;
      return whole(group.begin_ns + (group.end_ns - group.begin_ns) * share);
    };
    const std::int64_t begin = at(done);
    done += static_cast<double>(copy.bytes);
    result_.spans.push_back({back ? SimulatedStream::kBack : SimulatedStream::kOut,
                             back ? SimulatedWork::kCopyBack : SimulatedWork::kCopyOut, begin,
                             at(done), step_of(copy.what.pass, back), copy.what.item, copy.moment});
  }
}

PeakPlace TimedStep::describe_peak() const {
  PeakPlace found;
  if (passes_.empty()) return found;
  found.pass = step_of(peak_.pass, peak_.backward);
  found.moment = peak_.moment;
  const ChunkProfile& chunk = *chunks_[place_in(peak_.chunk)].model->chunk;
  std::vector<int> running;
  // What lies before a moment belongs to what went on then.
  for (int i = 0; i < peak_.moment; ++i) {
    const Moment& moment = chunk.timeline[place_in(i)];
    if (moment.kind == MomentKind::kCallBegins) running.push_back(moment.index);
    if (moment.kind == MomentKind::kCallEnds) std::erase(running, moment.index);
    if (moment.kind != MomentKind::kUnpack) continue;
    const int buffer = chunk.unpack_order[place_in(moment.index)];
    found.scope = chunk.buffers[place_in(buffer)].position.scope;
    found.what = chunk.buffers[place_in(buffer)].position.saver;
  }
  if (!peak_.backward && !running.empty()) {
    found.scope = chunk.operators[place_in(running.back())].scope;
    found.what = chunk.operators[place_in(running.back())].name;
  }
  return found;
}

Simulation TimedStep::take() && {
  result_.step_ns = whole(now_ns_);
  result_.peak = Bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(most_bytes_, 0)));
  result_.peak_place = describe_peak();
  if (trace_) {
    link_.finish();
    add_copies(SimulatedLink::kOut);
    add_copies(SimulatedLink::kBack);
    result_.memory.push_back({result_.step_ns, 0});
  }
  return std::move(result_);
}

}  // namespace spillway
