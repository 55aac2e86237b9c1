#include "predicted_events.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spillway::app {
namespace {

std::size_t place(int index) { return static_cast<std::size_t>(index); }

std::string name_of(const std::string& scope, const std::string& what) {
  return scope.empty() ? what : scope + " " + what;
}

/// Names for what a chunk's spans are about.
class ChunkNames {
 public:
  ChunkNames(const ChunkProfile& chunk, const ChunkPlan& plan) : chunk_(chunk), plan_(plan) {
    std::vector<int> running;
    std::string wanted = "backward begins";
    bool backward = false;
    for (const Moment& moment : chunk.timeline) {
      // What lies before a moment belongs to what went on then.
      if (backward) {
        names_.push_back(wanted);
      } else if (running.empty()) {
        names_.emplace_back("between operators");
      } else {
        const OperatorProfile& call = chunk.operators[place(running.back())];
        names_.push_back(name_of(call.scope, call.name));
      }
      backward = backward || moment.kind == MomentKind::kBackwardBegins;
      if (moment.kind == MomentKind::kCallBegins) running.push_back(moment.index);
      if (moment.kind == MomentKind::kCallEnds) std::erase(running, moment.index);
      if (moment.kind == MomentKind::kUnpack) {
        wanted = buffer(chunk.unpack_order[place(moment.index)]) + " backward";
      }
    }
  }

  /// Of what leads to a moment.
  [[nodiscard]] const std::string& piece(int moment) const { return names_[place(moment)]; }

  [[nodiscard]] std::string buffer(int id) const {
    if (place(id) < chunk_.buffers.size()) {
      const Position& position = chunk_.buffers[place(id)].position;
      const std::string number = position.ordinal > 0 ? " " + std::to_string(position.ordinal) : "";
      return name_of(position.scope, position.saver) + number;
    }
    const Anchor& anchor = plan_.anchors[place(id) - chunk_.buffers.size()];
    return name_of(anchor.scope, anchor.name) + " (anchor)";
  }

 private:
  const ChunkProfile& chunk_;
  const ChunkPlan& plan_;
  std::vector<std::string> names_;  // By moment.
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

  static std::string text_of(const PassStep& pass) {
    return std::string(pass.backward ? "backward" : "forward") + ", chunk " +
           std::to_string(pass.chunk) + ", micro-batch " + std::to_string(pass.micro_batch);
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
    events_.passes.push_back({text_of(span.pass),
                              span.pass.backward ? "backward" : "forward",
                              span.begin_ns,
                              span.end_ns,
                              {}});
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

}  // namespace spillway::app
