/// The work of streams in a step, as the JSON that Perfetto (ui.perfetto.dev)
/// and chrome://tracing read. Several processes side by side share one clock: what was predicted
/// and what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

/// An interval of work.
struct TraceSpan {
  std::string name;
  std::string category;  ///< "forward", "copy out", "wait", ...: spans of one kind, to filter by.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<std::pair<std::string, std::string>> details;  ///< Shown when it is chosen.

  bool operator==(const TraceSpan&) const = default;
};

/// A value from here on.
struct TracePoint {
  std::int64_t ns = 0;
  std::int64_t value = 0;

  bool operator==(const TracePoint&) const = default;
};

/// A stream. Its spans do not overlap, but may lie within each other.
struct TraceTrack {
  std::string name;
  std::vector<TraceSpan> spans;

  bool operator==(const TraceTrack&) const = default;
};

/// A number over time.
struct TraceCounter {
  std::string name;
  std::vector<TracePoint> points;  ///< In order.

  bool operator==(const TraceCounter&) const = default;
};

struct TraceProcess {
  std::string name;
  std::vector<TraceTrack> tracks;  ///< From top to bottom.
  std::vector<TraceCounter> counters;

  bool operator==(const TraceProcess&) const = default;
};

struct Trace {
  std::vector<TraceProcess> processes;

  bool operator==(const Trace&) const = default;
};

/// The events of a step, from a simulation or from events on the streams of a device. Times count
/// from the begin of the step.
struct StepEvents {
  std::vector<TraceSpan> passes;
  std::vector<TraceSpan> compute;
  std::vector<TraceSpan> copies_out;
  std::vector<TraceSpan> copies_back;
  std::vector<TraceSpan> gathers;  ///< All-gathers of sharded buffers, from begin to end.
  std::vector<TracePoint> memory;  ///< Bytes on the device above what was there before the step.
};

/// One track a stream, in the order above; none for what has nothing to show.
[[nodiscard]] TraceProcess process_of(std::string name, StepEvents events);

/// Times are in microseconds with three digits, so that nothing is lost.
[[nodiscard]] std::string to_chrome_json(const Trace& trace);

}  // namespace spillway
