#include "torch/record/step_trace.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "spillway/core/numbers.hpp"
#include "spillway/trace/names.hpp"

namespace spillway {

StepTrace::TracedPass& StepTrace::of(const Pass& pass) {
  const auto number = static_cast<std::size_t>(pass.number);
  if (passes_.size() <= number) passes_.resize(number + 1);
  return passes_[number];
}

void StepTrace::call_begins(const Pass& pass, int call, std::string name) {
  std::vector<std::string>& calls = of(pass).calls;
  calls.resize(std::max(calls.size(), static_cast<std::size_t>(call) + 1));
  calls[static_cast<std::size_t>(call)] = std::move(name);
}

void StepTrace::unpacked(const Pass& pass, int buffer) { of(pass).unpacks.push_back(buffer); }

void StepTrace::copied_out(const Pass& pass, int buffer, std::uint64_t ticket) {
  copies_.push_back({ticket, pass.number, buffer});
}

void StepTrace::gathered(int pass, int buffer, std::size_t bytes, TimeMark begin, TimeMark end) {
  gathers_.push_back({pass, buffer, Bytes(bytes), std::move(begin), std::move(end)});
}

void StepTrace::replayed(const Pass& pass, int buffer, TimeMark begin, TimeMark end) {
  replays_.push_back({pass.number, buffer, std::move(begin), std::move(end)});
}

void StepTrace::end(const std::vector<std::shared_ptr<Pass>>& passes,
                    const std::vector<std::pair<std::shared_ptr<Pass>, bool>>& order,
                    const StepClock& clock, const WaitTimes::Marks& waits) {
  for (const auto& pass : passes) {
    TracedPass& traced = of(*pass);
    traced.step = {pass->key.chunk, pass->key.micro_batch, false};
    traced.moments = pass->moments;
    traced.saved = pass->saves > 0;
  }
  for (const auto& [pass, backward] : order) {
    if (!pass->backward_begun || pass->layout == nullptr) continue;
    schedule_.push_back({pass->key.chunk, pass->key.micro_batch, backward});
  }
  intervals_ = clock.intervals();
  memory_ = clock.memory();
  waits_ = waits.waits;
}

/// Reads the marks of a traced step.
class StepEventsReader {
 public:
  StepEventsReader(const StepTrace& trace, TorchDevice& device) : trace_(trace), device_(device) {
    for (std::size_t i = 0; i < trace_.passes_.size(); ++i) {
      const StepTrace::TracedPass& pass = trace_.passes_[i];
      if (pass.moments == nullptr) continue;
      numbers_[pass.moments.get()] = i;
      pieces_[i] = pieces_of(
          pass.moments->list,
          [&](int call) { return at(pass.calls, call).value_or("an operator"); },
          [&](int unpack) { return buffer(pass, at(pass.unpacks, unpack).value_or(-1)); });
    }
  }

  [[nodiscard]] StepEvents run(const std::vector<TransferRecord>& records) && {
    read_compute();
    read_memory();
    read_copies(records);
    read_gathers();
    return std::move(events_);
  }

 private:
  /// A span of the compute stream and the pass it belongs to.
  struct Work {
    TraceSpan span;
    std::optional<PassStep> pass;
    const Piece* piece = nullptr;
  };

  template <typename T>
  static std::optional<T> at(const std::vector<T>& values, int position) {
    const auto index = static_cast<std::size_t>(position);
    if (position < 0 || index >= values.size()) return std::nullopt;
    return values[index];
  }

  [[nodiscard]] std::int64_t ns(const TimeMark& mark) const {
    return std::max<std::int64_t>(device_.elapsed(trace_.epoch_, mark).count(), 0);
  }

  [[nodiscard]] std::string buffer(const StepTrace::TracedPass& pass, int id) const {
    static const ChunkPlan kNone;
    if (trace_.plan_ != nullptr) {
      for (const ChunkPlan& chunk : trace_.plan_->chunks) {
        if (chunk.chunk == pass.step.chunk) return buffer_name(chunk, id);
      }
    }
    return buffer_name(kNone, id);
  }

  void read_compute() {
    std::vector<Work> all;
    for (const StepClock::Interval& interval : trace_.intervals_) {
      Work work;
      work.span = {"outside of passes", "", ns(interval.begin), ns(interval.end), {}};
      if (const auto found = numbers_.find(interval.pass.get()); found != numbers_.end()) {
        const std::vector<Piece>& pieces = pieces_.at(found->second);
        work.piece = &pieces[std::min(interval.moment, pieces.size() - 1)];
        work.span.name = work.piece->name;
        if (const StepTrace::TracedPass& pass = trace_.passes_[found->second]; pass.saved) {
          work.pass = pass.step;
          work.pass->backward = work.piece->backward;
          work.span.category = work.piece->backward ? "backward" : "forward";
        }
      }
      all.push_back(std::move(work));
    }
    for (const WaitTimes::Wait& wait : trace_.waits_) {
      all.push_back({{name_of(wait.cause), "wait", ns(wait.begin), ns(wait.end), {}}, {}, nullptr});
    }
    for (const StepTrace::Repeated& each : trace_.replays_) {
      const StepTrace::TracedPass& pass = trace_.passes_[static_cast<std::size_t>(each.pass)];
      PassStep step = pass.step;
      step.backward = true;
      all.push_back(
          {{"repeat for " + buffer(pass, each.buffer), "replay", ns(each.begin), ns(each.end), {}},
           step,
           nullptr});
    }
    std::stable_sort(all.begin(), all.end(), [](const Work& a, const Work& b) {
      return a.span.begin_ns < b.span.begin_ns;
    });
    const Piece* last = nullptr;
    std::optional<PassStep> last_pass;
    for (Work& work : all) {
      if (work.span.end_ns <= work.span.begin_ns) continue;
      add_pass(work);
      // An operator that saves is interrupted by the session; its pieces are joined.
      const bool goes_on = work.piece != nullptr && work.piece->since >= 0 && last != nullptr &&
                           last_pass == work.pass && same(*last, *work.piece);
      if (goes_on) {
        events_.compute.back().end_ns = work.span.end_ns;
      } else {
        add(events_.compute, std::move(work.span));
      }
      last = work.piece;
      last_pass = work.pass;
    }
  }

  static bool same(const Piece& a, const Piece& b) {
    return a.since == b.since && a.backward == b.backward && a.name == b.name;
  }

  static const char* name_of(WaitCause cause) {
    switch (cause) {
      case WaitCause::kRelease:
        return "wait for a copy out, to release";
      case WaitCause::kReload:
        return "wait for a copy back";
      case WaitCause::kInPlace:
        return "wait for a copy out of what was used in place";
      case WaitCause::kGather:
        return "wait for other ranks";
    }
    return "";
  }

  void add_pass(const Work& work) {
    if (!work.pass) return;
    if (last_pass_ == work.pass) {
      events_.passes.back().end_ns = work.span.end_ns;
      return;
    }
    last_pass_ = work.pass;
    add(events_.passes, {spillway::name_of(*work.pass),
                         work.pass->backward ? "backward" : "forward",
                         work.span.begin_ns,
                         work.span.end_ns,
                         {}});
  }

  /// Device clocks tick every half a microsecond: spans that overlap by that are made adjacent.
  static void add(std::vector<TraceSpan>& track, TraceSpan span) {
    if (!track.empty()) span.begin_ns = std::max(span.begin_ns, track.back().end_ns);
    span.end_ns = std::max(span.end_ns, span.begin_ns);
    track.push_back(std::move(span));
  }

  void read_memory() {
    for (const StepClock::MemoryMark& mark : trace_.memory_) {
      std::vector<TracePoint>& points = events_.memory;
      const std::int64_t time =
          points.empty() ? ns(mark.at) : std::max(ns(mark.at), points.back().ns);
      // Of several at one time the largest counts.
      if (!points.empty() && points.back().ns == time) {
        points.back().value = std::max(points.back().value, mark.bytes);
      } else {
        points.push_back({time, mark.bytes});
      }
    }
  }

  /// One at a time, in the order of their begins.
  void read_gathers() {
    std::vector<TraceSpan> spans;
    for (const StepTrace::Gathered& each : trace_.gathers_) {
      const StepTrace::TracedPass& pass = trace_.passes_[static_cast<std::size_t>(each.pass)];
      spans.push_back({buffer(pass, each.buffer),
                       "gather",
                       ns(each.begin),
                       ns(each.end),
                       {{"bytes", to_string(each.bytes)},
                        {"micro-batch", std::to_string(pass.step.micro_batch)}}});
    }
    std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
      return a.begin_ns < b.begin_ns;
    });
    for (TraceSpan& span : spans) add(events_.gathers, std::move(span));
  }

  struct Copied {
    const TransferRecord* record = nullptr;
    const CopyRecord* copy = nullptr;
    const StepTrace::CopyOut* of = nullptr;
  };

  void read_copies(const std::vector<TransferRecord>& records) {
    std::unordered_map<std::uint64_t, const StepTrace::CopyOut*> known;
    for (const StepTrace::CopyOut& copy : trace_.copies_) known[copy.ticket] = &copy;
    std::vector<Copied> out;
    std::vector<Copied> back;
    for (const TransferRecord& record : records) {
      const auto found = known.find(record.ticket);
      if (found == known.end()) continue;
      out.push_back({&record, &record.out, found->second});
      if (record.back) back.push_back({&record, &*record.back, found->second});
    }
    add_copies(std::move(out), "copy out", events_.copies_out);
    add_copies(std::move(back), "copy back", events_.copies_back);
  }

  void add_copies(std::vector<Copied> copies, const char* category,
                  std::vector<TraceSpan>& track) const {
    std::stable_sort(copies.begin(), copies.end(), [](const Copied& a, const Copied& b) {
      return std::pair(a.copy->started, a.copy->queued) <
             std::pair(b.copy->started, b.copy->queued);
    });
    for (std::size_t first = 0; first < copies.size();) {
      // Copies of a group share their times; each gets its share.
      std::size_t end = first;
      double bytes = 0;
      for (; end < copies.size() && copies[end].copy->started == copies[first].copy->started &&
             copies[end].copy->done == copies[first].copy->done;
           ++end) {
        bytes += static_cast<double>(copies[end].record->bytes.count());
      }
      const auto begin_ns = static_cast<double>(copies[first].copy->started.count());
      const double took = static_cast<double>(copies[first].copy->done.count()) - begin_ns;
      double before = 0;
      for (std::size_t i = first; i < end; ++i) {
        const double until = before + static_cast<double>(copies[i].record->bytes.count());
        add(track, span_of(copies[i], category, end - first, begin_ns + took * before / bytes,
                           begin_ns + took * until / bytes));
        before = until;
      }
      first = end;
    }
  }

  [[nodiscard]] TraceSpan span_of(const Copied& copied, const char* category, std::size_t group,
                                  double begin_ns, double end_ns) const {
    const StepTrace::TracedPass& pass = trace_.passes_[static_cast<std::size_t>(copied.of->pass)];
    TraceSpan span{buffer(pass, copied.of->buffer),
                   category,
                   static_cast<std::int64_t>(begin_ns),
                   static_cast<std::int64_t>(end_ns),
                   {}};
    span.begin_ns = std::max<std::int64_t>(span.begin_ns, 0);
    span.details = {
        {"bytes", to_string(copied.record->bytes)},
        {"micro-batch", std::to_string(pass.step.micro_batch)},
        {"compute waited",
         with_decimals(static_cast<double>(copied.copy->wait.count()) / 1e6, 3) + " ms"}};
    if (group > 1) {
      span.details.emplace_back("copied with", std::to_string(group - 1) + " others; its share");
    }
    return span;
  }

  const StepTrace& trace_;
  TorchDevice& device_;
  std::unordered_map<const PassMoments*, std::size_t> numbers_;
  std::unordered_map<std::size_t, std::vector<Piece>> pieces_;
  StepEvents events_;
  std::optional<PassStep> last_pass_;
};

StepEvents StepTrace::events(TorchDevice& device,
                             const std::vector<TransferRecord>& records) const {
  return StepEventsReader(*this, device).run(records);
}

}  // namespace spillway
