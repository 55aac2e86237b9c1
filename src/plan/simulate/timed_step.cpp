#include "plan/simulate/timed_step.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

std::int64_t whole(double ns) { return std::llround(ns); }

}  // namespace

TimedStep::TimedStep(const std::vector<PlannedChunk>& chunks, const PassSchedule& schedule,
                     const LinkSpeed& link, const ShardModel& shard, bool trace, AloneTimes* alone)
    : chunks_(chunks), link_(link), shard_(shard), trace_(trace), alone_(alone) {
  for (const PassStep& step : schedule) {
    if (step.backward) continue;
    passes_.push_back(step);
    const auto chunk = std::find_if(chunks.begin(), chunks.end(), [&](const PlannedChunk& each) {
      return each.model->chunk->chunk == step.chunk;
    });
    chunk_index_.push_back(static_cast<int>(chunk - chunks.begin()));
  }
  transfer_of_.resize(passes_.size());
}

void TimedStep::computes(const StepPosition& position, std::int64_t ns, std::int64_t bytes) {
  const double begin = now_ns_;
  const double alone = go_on(static_cast<double>(ns));
  if (alone_ != nullptr) (*alone_)[to_index(position.chunk)][to_index(position.moment)] += alone;
  hold(position, bytes);
  if (!trace_) return;
  result_.memory.push_back({whole(begin), bytes});
  if (ns > 0) {
    span(position.backward ? SimulatedWork::kBackward : SimulatedWork::kForward, position, begin,
         -1);
  }
}

void TimedStep::repeats(const StepPosition& position, const ReplayJob& job, std::int64_t bytes) {
  const double begin = now_ns_;
  (void)go_on(static_cast<double>(job.ns));
  result_.replay_ns += job.ns;
  result_.repeated_calls += job.calls.size();
  hold(position, bytes);
  if (!trace_) return;
  result_.memory.push_back({whole(begin), bytes});
  span(SimulatedWork::kReplay, position, begin, job.buffer);
}

double TimedStep::go_on(double ns) {
  if (alone_ == nullptr) {
    const double begin = std::exchange(now_ns_, link_.compute(now_ns_, ns));
    slowed_ns_ += now_ns_ - begin - ns;
    return ns;
  }
  const double alone = link_.alone(now_ns_, ns);
  now_ns_ += ns;
  return alone;
}

void TimedStep::hold(const StepPosition& position, std::int64_t bytes) {
  if (std::exchange(any_bytes_, true) && bytes <= most_bytes_) return;
  most_bytes_ = bytes;
  peak_ = position;
}

TimedStep::Transfer& TimedStep::transfer_of(ItemRef what) {
  return transfers_[to_index(transfer_of_[to_index(what.pass)][to_index(what.item)])];
}

void TimedStep::copies_out(const StepPosition& position, ItemRef what, std::int64_t bytes) {
  std::vector<int>& numbers = transfer_of_[to_index(what.pass)];
  if (numbers.size() <= to_index(what.item)) numbers.resize(to_index(what.item) + 1, -1);
  numbers[to_index(what.item)] = static_cast<int>(transfers_.size());
  Transfer& transfer = transfers_.emplace_back();
  transfer.groups[SimulatedLink::kOut] = link_.add(SimulatedLink::kOut, bytes, now_ns_);
  transfer.seen.pass = step_of(what.pass, false);
  transfer.seen.buffer = what.item;
  transfer.seen.bytes = Bytes(static_cast<std::uint64_t>(bytes));
  transfer.seen.saved = position.moment;
  transfer.seen.saved_ns = whole(now_ns_);
}

void TimedStep::releases(const StepPosition& position, ItemRef what) {
  Transfer& transfer = transfer_of(what);
  const double end = link_.end_of(SimulatedLink::kOut, transfer.groups[SimulatedLink::kOut]);
  wait(position, what, end, result_.waits.release_ns);
  transfer.seen.released_in = step_of(position.pass, position.backward);
  transfer.seen.released = position.moment;
  transfer.seen.released_ns = whole(now_ns_);
}

void TimedStep::gives_up(const StepPosition& position, ItemRef what) {
  Transfer& transfer = transfer_of(what);
  const int group = transfer.groups[SimulatedLink::kOut];
  const auto bytes = static_cast<std::int64_t>(transfer.seen.bytes.count());
  transfer.cancelled = link_.remove(SimulatedLink::kOut, group, bytes);
  if (transfer.cancelled) return;
  wait(position, what, link_.end_of(SimulatedLink::kOut, group), result_.waits.in_place_ns);
}

void TimedStep::copies_back(const StepPosition& position, ItemRef what, std::int64_t bytes) {
  Transfer& transfer = transfer_of(what);
  transfer.groups[SimulatedLink::kBack] =
      link_.add(SimulatedLink::kBack, bytes, now_ns_, transfer.groups[SimulatedLink::kOut]);
  transfer.seen.reloaded_in = step_of(position.pass, position.backward);
  transfer.seen.reloaded = position.moment;
  transfer.seen.reloaded_ns = whole(now_ns_);
  back_order_.push_back(static_cast<int>(&transfer - transfers_.data()));
}

void TimedStep::fetches(const StepPosition& position, ItemRef what) {
  Transfer& transfer = transfer_of(what);
  const double end = link_.end_of(SimulatedLink::kBack, transfer.groups[SimulatedLink::kBack]);
  wait(position, what, end, result_.waits.reload_ns);
  transfer.seen.ready_ns = whole(now_ns_);
}

void TimedStep::gathers(const StepPosition& position, ItemRef what, bool away) {
  double begin = std::max(now_ns_, gathered_ns_);
  if (away) {
    const int group = transfer_of(what).groups[SimulatedLink::kBack];
    begin = std::max(begin, link_.end_of(SimulatedLink::kBack, group));
  }
  const PlannedItem& item =
      chunks_[to_index(chunk_index_[to_index(what.pass)])].items[to_index(what.item)];
  const auto others = static_cast<double>(item.whole - item.part);
  const double speed = shard_.bytes_per_second;
  gathered_ns_ = begin + (speed > 0 ? others / speed * 1e9 : 0);
  gather_end_[{what.pass, what.item}] = gathered_ns_;
  if (!trace_) return;
  result_.spans.push_back({SimulatedStream::kGather, SimulatedWork::kGather, whole(begin),
                           whole(gathered_ns_), step_of(what.pass, true), what.item,
                           position.pass == what.pass ? position.moment : -1});
}

void TimedStep::has_gathered(const StepPosition& position, ItemRef what) {
  wait(position, what, gather_end_.at({what.pass, what.item}), result_.waits.gather_ns);
}

void TimedStep::hands_over() { link_.hand_over(); }

void TimedStep::wait(const StepPosition& position, ItemRef what, double until,
                     std::int64_t& total) {
  if (until <= now_ns_) return;
  const double begin = std::exchange(now_ns_, until);
  total += whole(until) - whole(begin);
  if (trace_) span(SimulatedWork::kWait, position, begin, what.item);
}

PassStep TimedStep::step_of(int pass, bool backward) const {
  PassStep step = passes_[to_index(pass)];
  step.backward = backward;
  return step;
}

void TimedStep::span(SimulatedWork work, const StepPosition& position, double begin, int buffer) {
  result_.spans.push_back({SimulatedStream::kCompute, work, whole(begin), whole(now_ns_),
                           step_of(position.pass, position.backward), buffer, position.moment});
}

/// Copies of one group follow each other, each as long as its share of the bytes.
void TimedStep::add_copies(SimulatedLink::Direction direction, const std::vector<int>& transfers) {
  const bool back = direction == SimulatedLink::kBack;
  const std::vector<SimulatedLink::Group>& groups = link_.groups(direction);
  int last_group = -1;
  double done = 0;
  for (const int number : transfers) {
    Transfer& transfer = transfers_[to_index(number)];
    const int number_of_group = transfer.groups[direction];
    if (std::exchange(last_group, number_of_group) != number_of_group) done = 0;
    const SimulatedLink::Group& group = groups[to_index(number_of_group)];
    const auto at = [&](double bytes) {
      const double share = group.bytes > 0 ? bytes / group.bytes : 1;
      return whole(group.begin_ns + (group.end_ns - group.begin_ns) * share);
    };
    SimulatedTransfer& seen = transfer.seen;
    std::int64_t& begin = back ? seen.back_begin_ns : seen.out_begin_ns;
    std::int64_t& end = back ? seen.back_end_ns : seen.out_end_ns;
    begin = at(done);
    done += static_cast<double>(seen.bytes.count());
    end = at(done);
    const bool own = seen.reloaded_in.chunk == seen.pass.chunk &&
                     seen.reloaded_in.micro_batch == seen.pass.micro_batch;
    const int moment = !back ? seen.saved : own ? seen.reloaded : -1;
    PassStep pass = seen.pass;
    pass.backward = back;
    result_.spans.push_back({back ? SimulatedStream::kBack : SimulatedStream::kOut,
                             back ? SimulatedWork::kCopyBack : SimulatedWork::kCopyOut, begin, end,
                             pass, seen.buffer, moment});
  }
}

void TimedStep::add_trace() {
  link_.finish();
  std::vector<int> out_order;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    if (!transfers_[i].cancelled) out_order.push_back(static_cast<int>(i));
  }
  add_copies(SimulatedLink::kOut, out_order);
  add_copies(SimulatedLink::kBack, back_order_);
  for (const int number : out_order) {
    result_.transfers.push_back(transfers_[to_index(number)].seen);
  }
}

PeakLocation TimedStep::describe_peak() const {
  PeakLocation found;
  if (passes_.empty()) return found;
  found.pass = step_of(peak_.pass, peak_.backward);
  found.moment = peak_.moment;
  const ChunkProfile& chunk = *chunks_[to_index(peak_.chunk)].model->chunk;
  std::vector<int> running;
  // What lies before a moment belongs to what went on then.
  for (int i = 0; i < peak_.moment; ++i) {
    const Moment& moment = chunk.timeline[to_index(i)];
    if (moment.kind == MomentKind::kCallBegins) running.push_back(moment.index);
    if (moment.kind == MomentKind::kCallEnds) std::erase(running, moment.index);
    if (moment.kind != MomentKind::kUnpack) continue;
    const int buffer = chunk.unpack_order[to_index(moment.index)];
    found.scope = chunk.buffers[to_index(buffer)].position.scope;
    found.what = chunk.buffers[to_index(buffer)].position.saver;
  }
  if (!peak_.backward && !running.empty()) {
    found.scope = chunk.operators[to_index(running.back())].scope;
    found.what = chunk.operators[to_index(running.back())].name;
  }
  return found;
}

Simulation TimedStep::take() && {
  result_.step_ns = whole(now_ns_);
  result_.slowed_ns = whole(slowed_ns_);
  result_.peak = Bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(most_bytes_, 0)));
  result_.peak_location = describe_peak();
  if (trace_) add_trace();
  return std::move(result_);
}

}  // namespace spillway
