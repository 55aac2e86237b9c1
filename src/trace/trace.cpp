#include "spillway/trace/trace.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// Microseconds, as text: a double would not keep long times to the nanosecond.
std::string microseconds(std::int64_t ns) {
  const bool negative = ns < 0;
  const auto size = negative ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  char fraction[8];
  std::snprintf(fraction, sizeof(fraction), ".%03u", static_cast<unsigned>(size % 1000));
  return (negative ? "-" : "") + std::to_string(size / 1000) + fraction;
}

/// One event a line. Numbers of times are put in as text, which is what JSON is.
class Writer {
 public:
  void add(const Json& event, const TraceSpan* span, const TracePoint* point) {
    text_ += text_.empty() ? "" : ",\n";
    std::string line = event.dump();
    line.pop_back();
    if (span != nullptr) {
      line += ",\"ts\":" + microseconds(span->begin_ns) +
              ",\"dur\":" + microseconds(span->end_ns - span->begin_ns);
    }
    if (point != nullptr) line += ",\"ts\":" + microseconds(point->ns);
    text_ += line + "}";
  }

  void name(const char* what, int process, int thread, const std::string& name, int order) {
    Json event = {{"ph", "M"}, {"pid", process}, {"tid", thread}};
    event["name"] = std::string(what) + "_name";
    event["args"] = {{"name", name}};
    add(event, nullptr, nullptr);
    event["name"] = std::string(what) + "_sort_index";
    event["args"] = {{"sort_index", order}};
    add(event, nullptr, nullptr);
  }

  [[nodiscard]] std::string take() && {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text_ + "\n]}\n";
  }

 private:
  std::string text_;
};

void write(const TraceProcess& process, int number, Writer& writer) {
  writer.name("process", number, 0, process.name, number);
  int thread = 0;
  for (const TraceTrack& track : process.tracks) {
    ++thread;
    writer.name("thread", number, thread, track.name, thread);
    for (const TraceSpan& span : track.spans) {
      Json event = {{"ph", "X"}, {"pid", number}, {"tid", thread}, {"name", span.name}};
      if (!span.category.empty()) event["cat"] = span.category;
      for (const auto& [key, value] : span.details) event["args"][key] = value;
      writer.add(event, &span, nullptr);
    }
  }
  for (const TraceCounter& counter : process.counters) {
    for (const TracePoint& point : counter.points) {
      writer.add({{"ph", "C"},
                  {"pid", number},
                  {"tid", 0},
                  {"name", counter.name},
                  {"args", {{"bytes", point.value}}}},
                 nullptr, &point);
    }
  }
}

}  // namespace

TraceProcess process_of(std::string name, StepEvents events) {
  TraceProcess process;
  process.name = std::move(name);
  const auto add = [&](const char* track, std::vector<TraceSpan>& spans) {
    if (!spans.empty()) process.tracks.push_back({track, std::move(spans)});
  };
  add("passes", events.passes);
  add("compute", events.compute);
  add("copy out", events.copies_out);
  add("copy back", events.copies_back);
  add("gather", events.gathers);
  if (!events.memory.empty()) {
    process.counters.push_back({"device memory", std::move(events.memory)});
  }
  return process;
}

std::string to_chrome_json(const Trace& trace) {
  Writer writer;
  int number = 0;
  for (const TraceProcess& process : trace.processes) write(process, ++number, writer);
  return std::move(writer).take();
}

}  // namespace spillway
