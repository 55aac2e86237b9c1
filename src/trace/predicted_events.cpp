#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "spillway/core/index.hpp"
#include "spillway/trace/names.hpp"
#include "spillway/trace/predicted.hpp"

namespace spillway {
namespace {

/// Names for what a chunk's spans are about.
class ChunkNames {
 public:
  ChunkNames(const ChunkProfile& chunk, const ChunkPlan& plan)
      : plan_(plan),
        pieces_(pieces_of(
            chunk.timeline,
            [&](int call) {
              const OperatorProfile& found = chunk.operators[to_index(call)];
              return name_in(found.scope, found.name);
            },
            [&](int unpack) { return buffer_name(plan, chunk.unpack_order[to_index(unpack)]); })) {}

  /// Of what leads to a moment.
  [[nodiscard]] const std::string& piece(int moment) const {
    return pieces_[to_index(moment)].name;
  }
  [[nodiscard]] std::string buffer(int id) const { return buffer_name(plan_, id); }

 private:
  const ChunkPlan& plan_;
  std::vector<Piece> pieces_;
};

class Events {
 public:
  Events(const Simulation& simulation, const Profile& profile, const Plan& plan)
      : simulation_(simulation) {
    for (std::size_t i = 0; i < profile.chunks.size(); ++i) {
      names_.try_emplace(profile.chunks[i].chunk, profile.chunks[i], plan.chunks[i]);
    }
  }

  [[nodiscard]] StepEvents run() && {
    for (const SimulatedSpan& span : simulation_.spans) {
      if (span.stream == SimulatedStream::kCompute) add_compute(span);
      if (span.stream == SimulatedStream::kGather) add_gather(span);
    }
    for (const SimulatedTransfer& transfer : simulation_.transfers) add_transfer(transfer);
    const auto by_begin = [](const TraceSpan& a, const TraceSpan& b) {
      return a.begin_ns < b.begin_ns;
    };
    std::stable_sort(events_.copies_back.begin(), events_.copies_back.end(), by_begin);
    for (const MemoryPoint& point : simulation_.memory) {
      const bool same = !events_.memory.empty() && events_.memory.back().ns == point.ns;
      // Of several at one time the largest is what matters.
      if (same) {
        events_.memory.back().value = std::max(events_.memory.back().value, point.bytes);
      } else {
        events_.memory.push_back({point.ns, point.bytes});
      }
    }
    return std::move(events_);
  }

 private:
  [[nodiscard]] const ChunkNames& names(const PassStep& pass) const {
    return names_.at(pass.chunk);
  }

  void add_compute(const SimulatedSpan& span) {
    add_pass(span);
    TraceSpan event;
    event.begin_ns = span.begin_ns;
    event.end_ns = span.end_ns;
    switch (span.work) {
      case SimulatedWork::kForward:
      case SimulatedWork::kBackward:
        event.name = names(span.pass).piece(span.moment);
        event.category = span.pass.backward ? "backward" : "forward";
        break;
      case SimulatedWork::kReplay:
        event.name = "repeat for " + names(span.pass).buffer(span.buffer);
        event.category = "replay";
        break;
      case SimulatedWork::kWait:
        event.name = "wait for a copy";
        event.category = "wait";
        break;
      case SimulatedWork::kCopyOut:
      case SimulatedWork::kCopyBack:
      case SimulatedWork::kGather:
        return;
    }
    // An operator that saves is in pieces.
    std::vector<TraceSpan>& compute = events_.compute;
    const bool goes_on = !compute.empty() && compute.back().name == event.name &&
                         compute.back().end_ns == event.begin_ns && last_pass_ == span.pass;
    last_pass_ = span.pass;
    if (goes_on) {
      compute.back().end_ns = event.end_ns;
    } else {
      compute.push_back(std::move(event));
    }
  }

  void add_pass(const SimulatedSpan& span) {
    if (!events_.passes.empty() && last_pass_ == span.pass) {
      events_.passes.back().end_ns = span.end_ns;
      return;
    }
    events_.passes.push_back({name_of(span.pass),
                              span.pass.backward ? "backward" : "forward",
                              span.begin_ns,
                              span.end_ns,
                              {}});
  }

  void add_gather(const SimulatedSpan& span) {
    events_.gathers.push_back({names(span.pass).buffer(span.buffer),
                               "gather",
                               span.begin_ns,
                               span.end_ns,
                               {{"micro-batch", std::to_string(span.pass.micro_batch)}}});
  }

  void add_transfer(const SimulatedTransfer& transfer) {
    TraceSpan event;
    event.name = names(transfer.pass).buffer(transfer.buffer);
    event.category = "copy out";
    event.begin_ns = transfer.out_begin_ns;
    event.end_ns = transfer.out_end_ns;
    event.details = {{"bytes", to_string(transfer.bytes)},
                     {"micro-batch", std::to_string(transfer.pass.micro_batch)},
                     {"asked for at", milliseconds(transfer.saved_ns)}};
    if (transfer.released >= 0) {
      event.details.emplace_back("released at", milliseconds(transfer.released_ns));
    }
    TraceSpan back = event;
    events_.copies_out.push_back(std::move(event));
    if (transfer.reloaded < 0) return;
    back.category = "copy back";
    back.begin_ns = transfer.back_begin_ns;
    back.end_ns = transfer.back_end_ns;
    back.details[2].second = milliseconds(transfer.reloaded_ns);
    back.details.resize(3);
    if (transfer.ready_ns >= 0) {
      back.details.emplace_back("wanted at", milliseconds(transfer.ready_ns));
    }
    events_.copies_back.push_back(std::move(back));
  }

  static std::string milliseconds(std::int64_t ns) {
    const std::string thousandths = std::to_string(ns / 1000 % 1000);
    return std::to_string(ns / 1'000'000) + "." + std::string(3 - thousandths.size(), '0') +
           thousandths + " ms";
  }

  const Simulation& simulation_;
  std::map<int, ChunkNames> names_;  // By the chunk's number.
  StepEvents events_;
  PassStep last_pass_{-1, -1, false};
};

}  // namespace

StepEvents predicted_events(const Simulation& simulation, const Profile& profile,
                            const Plan& plan) {
  return Events(simulation, profile, plan).run();
}

}  // namespace spillway
