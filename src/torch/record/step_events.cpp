#include "torch/record/step_events.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "spillway/core/numbers.hpp"
#include "spillway/trace/names.hpp"
#include "torch/record/pass_moments.hpp"

namespace spillway {

namespace {

/// Reads the marks of a traced step.
class StepEventsReader {
 public:
  StepEventsReader(const TracedStep& step, TorchDevice& device)
      : step_(step),
        log_(*step.log),
        device_(device),
        moments_(moments_of(log_, step.passes.size())) {
    std::vector<std::unordered_map<int, int>> calls(step_.passes.size());
    std::vector<std::unordered_map<int, int>> unpacks(step_.passes.size());
    for (const StepLog::PassMoment& moment : log_.moments) {
      const auto pass = static_cast<std::size_t>(moment.pass);
      if (moment.kind == MomentKind::kCallBegins) calls[pass][moment.index] = moment.detail;
      if (moment.kind == MomentKind::kUnpack) unpacks[pass][moment.index] = moment.detail;
    }
    for (std::size_t i = 0; i < step_.passes.size(); ++i) {
      pieces_.push_back(pieces_of(
          moments_.passes[i].list,
          [&](int call) { return log_.names[static_cast<std::size_t>(calls[i].at(call))]; },
          [&](int unpack) { return buffer(static_cast<int>(i), unpacks[i].at(unpack)); }));
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

  [[nodiscard]] std::int64_t ns(StepLog::Mark mark) const {
    return std::max<std::int64_t>(device_.elapsed(*log_.epoch, log_.marks[mark]).count(), 0);
  }

  [[nodiscard]] const PassStep& pass_step(int number) const {
    static const PassStep kEarlier;  // A pass of an earlier step, which did not end with it.
    const auto index = static_cast<std::size_t>(number);
    return index < step_.passes.size() ? step_.passes[index].step : kEarlier;
  }

  [[nodiscard]] std::string buffer(int pass, int id) const {
    static const ChunkPlan kNone;
    if (step_.plan != nullptr) {
      for (const ChunkPlan& chunk : step_.plan->chunks) {
        if (chunk.chunk == pass_step(pass).chunk) return buffer_name(chunk, id);
      }
    }
    return buffer_name(kNone, id);
  }

  void read_compute() {
    std::vector<Work> all;
    for (std::size_t i = 0; i < log_.intervals.size(); ++i) {
      const StepLog::Interval& interval = log_.intervals[i];
      const StepMoments::Place& place = moments_.places[i];
      Work work;
      work.span = {"outside of passes", "", ns(interval.begin), ns(interval.end), {}};
      if (place.pass >= 0) {
        const auto number = static_cast<std::size_t>(place.pass);
        work.piece = &pieces_[number][place.moment];
        work.span.name = work.piece->name;
        if (const TracedStep::TracedPass& pass = step_.passes[number]; pass.saved) {
          work.pass = pass.step;
          work.pass->backward = work.piece->backward;
          work.span.category = work.piece->backward ? "backward" : "forward";
        }
      }
      all.push_back(std::move(work));
    }
    for (const StepLog::Wait& wait : log_.waits) {
      all.push_back({{name_of(wait.cause), "wait", ns(wait.begin), ns(wait.end), {}}, {}, nullptr});
    }
    for (const StepLog::Work& each : log_.works) {
      if (each.kind != StepLog::Work::Kind::kReplay) continue;
      PassStep step = pass_step(each.pass);
      step.backward = true;
      all.push_back({{"repeat for " + buffer(each.pass, each.buffer),
                      "replay",
                      ns(each.begin),
                      ns(each.end),
                      {}},
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
    for (const StepLog::Interval& interval : log_.intervals) {
      add_memory(interval.begin, interval.peak);
      add_memory(interval.end, interval.peak_after);
    }
  }

  /// The peak of allocated bytes from there to the next mark.
  void add_memory(StepLog::Mark mark, std::int64_t bytes) {
    std::vector<TracePoint>& points = events_.memory;
    const std::int64_t time = points.empty() ? ns(mark) : std::max(ns(mark), points.back().ns);
    // Of several at one time the largest counts.
    if (!points.empty() && points.back().ns == time) {
      points.back().value = std::max(points.back().value, bytes);
    } else {
      points.push_back({time, bytes});
    }
  }

  /// One at a time, in the order of their begins.
  void read_gathers() {
    std::vector<TraceSpan> spans;
    for (const StepLog::Work& each : log_.works) {
      if (each.kind != StepLog::Work::Kind::kGather) continue;
      const std::string micro_batch = std::to_string(pass_step(each.pass).micro_batch);
      spans.push_back({buffer(each.pass, each.buffer),
                       "gather",
                       ns(each.begin),
                       ns(each.end),
                       {{"bytes", to_string(each.bytes)}, {"micro-batch", micro_batch}}});
    }
    std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
      return a.begin_ns < b.begin_ns;
    });
    for (TraceSpan& span : spans) add(events_.gathers, std::move(span));
  }

  struct Copied {
    const TransferRecord* record = nullptr;
    const CopyRecord* copy = nullptr;
    const StepLog::CopyOut* of = nullptr;
  };

  void read_copies(const std::vector<TransferRecord>& records) {
    std::unordered_map<std::uint64_t, const StepLog::CopyOut*> known;
    for (const StepLog::CopyOut& copy : log_.copies) known[copy.ticket] = &copy;
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
    TraceSpan span{buffer(copied.of->pass, copied.of->buffer),
                   category,
                   static_cast<std::int64_t>(begin_ns),
                   static_cast<std::int64_t>(end_ns),
                   {}};
    span.begin_ns = std::max<std::int64_t>(span.begin_ns, 0);
    span.details = {
        {"bytes", to_string(copied.record->bytes)},
        {"micro-batch", std::to_string(pass_step(copied.of->pass).micro_batch)},
        {"compute waited",
         with_decimals(static_cast<double>(copied.copy->wait.count()) / 1e6, 3) + " ms"}};
    if (group > 1) {
      span.details.emplace_back("copied with", std::to_string(group - 1) + " others; its share");
    }
    return span;
  }

  const TracedStep& step_;
  const StepLog& log_;
  TorchDevice& device_;
  StepMoments moments_;
  std::vector<std::vector<Piece>> pieces_;  // By pass.
  StepEvents events_;
  std::optional<PassStep> last_pass_;
};

}  // namespace

StepEvents step_events_of(const TracedStep& step, TorchDevice& device,
                          const std::vector<TransferRecord>& records) {
  return StepEventsReader(step, device).run(records);
}

}  // namespace spillway
