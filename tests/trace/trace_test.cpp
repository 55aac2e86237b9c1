#include "spillway/trace/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json parsed(const Trace& trace) { return json::parse(to_chrome_json(trace)); }

TraceSpan span(const std::string& name, std::int64_t begin, std::int64_t end) {
  return {name, "forward", begin, end, {}};
}

TEST(Trace, OfNothingIsATraceWithoutEvents) {
  EXPECT_THAT(parsed({})["traceEvents"], IsEmpty());
  EXPECT_EQ(parsed({})["displayTimeUnit"], "ms");
}

TEST(Trace, NamesProcessesAndStreams) {
  Trace trace;
  trace.processes.push_back({"predicted", {{"compute", {}}, {"copy out", {}}}, {}});
  trace.processes.push_back({"measured", {{"compute", {}}}, {}});
  std::vector<std::string> names;
  const json events = parsed(trace)["traceEvents"];
  for (const json& event : events) {
    EXPECT_EQ(event["ph"], "M");
    if (event["args"].contains("name")) {
      names.push_back(std::to_string(event["pid"].get<int>()) + "." +
                      std::to_string(event["tid"].get<int>()) + " " +
                      event["args"]["name"].get<std::string>());
    }
  }
  EXPECT_THAT(names, ElementsAre("1.0 predicted", "1.1 compute", "1.2 copy out", "2.0 measured",
                                 "2.1 compute"));
}

TEST(Trace, SaysWhenSpansBeginAndHowLongTheyAre) {
  Trace trace;
  TraceSpan work = span("aten::mm", 1'234'567, 2'000'000);
  work.details = {{"scope", "layers.3.mlp"}, {"bytes", "1.5 GiB"}};
  trace.processes.push_back({"predicted", {{"compute", {work}}}, {}});
  const json event = parsed(trace)["traceEvents"].back();
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["name"], "aten::mm");
  EXPECT_EQ(event["cat"], "forward");
  EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 1234.567);
  EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 765.433);
  EXPECT_EQ(event["args"]["scope"], "layers.3.mlp");
  EXPECT_EQ(event["args"]["bytes"], "1.5 GiB");
}

TEST(Trace, KeepsEveryNanosecondOfLongTimes) {
  Trace trace;
  trace.processes.push_back(
      {"predicted",
       {{"compute", {span("long", 900'719'925'474'099'301, 900'719'925'474'099'302)}}},
       {}});
  EXPECT_THAT(to_chrome_json(trace), HasSubstr("\"ts\":900719925474099.301,\"dur\":0.001"));
  trace.processes[0].tracks[0].spans = {span("before", -1'500, -500)};
  EXPECT_THAT(to_chrome_json(trace), HasSubstr("\"ts\":-1.500,\"dur\":1.000"));
}

TEST(Trace, CountsMemory) {
  Trace trace;
  trace.processes.push_back({"measured", {}, {{"device memory", {{5'000, 1 << 20}, {6'000, 0}}}}});
  const json events = parsed(trace)["traceEvents"];
  ASSERT_GE(events.size(), 2U);
  const json& first = events[events.size() - 2];
  EXPECT_EQ(first["ph"], "C");
  EXPECT_EQ(first["name"], "device memory");
  EXPECT_DOUBLE_EQ(first["ts"].get<double>(), 5);
  EXPECT_EQ(first["args"]["bytes"], 1 << 20);
  EXPECT_EQ(events.back()["args"]["bytes"], 0);
}

TEST(Trace, WritesNamesThatJsonWouldMisread) {
  Trace trace;
  trace.processes.push_back({"a \"quoted\"\n name", {}, {}});
  EXPECT_EQ(parsed(trace)["traceEvents"][0]["args"]["name"], "a \"quoted\"\n name");
}

TEST(StepEvents, BecomeOneTrackAStreamAndLeaveOutTheEmptyOnes) {
  StepEvents events;
  events.compute = {span("work", 0, 10)};
  events.copies_back = {span("copy", 5, 7)};
  events.gathers = {span("gather", 6, 9)};
  events.memory = {{0, 100}};
  const TraceProcess process = process_of("predicted", events);
  EXPECT_EQ(process.name, "predicted");
  ASSERT_EQ(process.tracks.size(), 3U);
  EXPECT_EQ(process.tracks[2].name, "gather");
  EXPECT_EQ(process.tracks[2].spans, events.gathers);
  EXPECT_EQ(process.tracks[0].name, "compute");
  EXPECT_EQ(process.tracks[0].spans, events.compute);
  EXPECT_EQ(process.tracks[1].name, "copy back");
  ASSERT_EQ(process.counters.size(), 1U);
  EXPECT_EQ(process.counters[0].points, events.memory);
  EXPECT_THAT(process_of("nothing", {}).counters, IsEmpty());
}

}  // namespace
}  // namespace spillway
