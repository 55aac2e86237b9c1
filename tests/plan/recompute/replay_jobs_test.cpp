#include "plan/recompute/replay_jobs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/graph_builder.hpp"
#include "plan/support/plan_queries.hpp"
#include "plan/support/recompute_queries.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kRecompute;
using testing::plan_by;

/// The replays of the first chunk.
struct Replays {
  explicit Replays(Profile made, const std::string& rules = kRecompute,
                   Bytes cache_limit = kDefaultRecomputeCache)
      : profile(std::move(made)) {
    testing::add_timelines(profile);
    model = model_of(profile.chunks[0], profile.granularity);
    plan = plan_by(profile, rules);
    result = replays_of(model, plan.chunks[0], cache_limit);
  }
  Replays(const Replays&) = delete;

  [[nodiscard]] const ReplayJob& job(std::size_t number) const { return result.jobs.at(number); }
  [[nodiscard]] int needed_until(int id) const {
    return result.needed_until.at(static_cast<std::size_t>(id));
  }
  [[nodiscard]] int dropped(int buffer) const {
    return model.buffers.at(static_cast<std::size_t>(buffer)).dropped;
  }
  [[nodiscard]] int moment(int unpack) const {
    return model.unpack_moment.at(static_cast<std::size_t>(unpack));
  }

  Profile profile;
  PassModel model;
  Plan plan;
  ReplayPlan result;
};

TEST(ReplayJobs, AreNoneWhereNothingIsRecomputed) {
  GraphBuilder graph;
  graph.save(graph.call({}), "kept");
  const Replays replays(graph.profile());
  EXPECT_THAT(replays.result.jobs, IsEmpty());
  EXPECT_THAT(replays.result.needed_until, ElementsAre(replays.dropped(0)));
}

TEST(ReplayJobs, RepeatTheCallsBackToWhatIsHeld) {
  GraphBuilder graph;
  const int kept = graph.save(graph.call({.makes = {1000}}), "kept");
  const int middle = graph.call({.reads = {0}, .makes = {300}, .ns = 5});
  const int made = graph.call({.reads = {middle}, .makes = {40}, .ns = 7});
  const int recomputed = graph.save(made, "recomputed");
  const Replays replays(graph.profile({kept, recomputed}));
  ASSERT_EQ(replays.result.jobs.size(), 1U);
  const ReplayJob& job = replays.job(0);
  EXPECT_EQ(job.unpack, 1);
  EXPECT_EQ(job.buffer, recomputed);
  EXPECT_THAT(job.calls, ElementsAre(1, 2));
  EXPECT_EQ(job.ns, 12);
  EXPECT_THAT(job.makes, ElementsAre(recomputed));
  EXPECT_THAT(job.reads, ElementsAre(kept));
  EXPECT_EQ(job.transient_bytes, 300);
  EXPECT_THAT(replays.result.cached, IsEmpty());
  EXPECT_LT(replays.dropped(kept), replays.dropped(recomputed));
  EXPECT_EQ(replays.needed_until(kept), replays.dropped(recomputed)) << "the replay starts from it";
}

TEST(ReplayJobs, MakeEverythingAtOnceThatTheirCallsMake) {
  GraphBuilder graph;
  const int kept = graph.save(graph.call({}), "kept");
  const int both = graph.call({.reads = {0}, .makes = {100, 200}});
  const int first = graph.save(both, "recomputed");
  const int second = graph.save(both + 1, "recomputed");
  const Replays replays(graph.profile({second, first, kept}));
  ASSERT_EQ(replays.result.jobs.size(), 1U);
  EXPECT_EQ(replays.job(0).buffer, second);
  EXPECT_THAT(replays.job(0).makes, ElementsAre(first, second));
  EXPECT_EQ(replays.job(0).transient_bytes, 0);
}

TEST(ReplayJobs, RunThroughBuffersThatAreRecomputedThemselves) {
  GraphBuilder graph;
  const int kept = graph.save(graph.call({}), "kept");
  const int middle = graph.save(graph.call({.reads = {0}}), "recomputed");
  const int last = graph.save(graph.call({.reads = {1}}), "recomputed");
  const Replays replays(graph.profile({last, middle, kept}));
  ASSERT_EQ(replays.result.jobs.size(), 1U);
  EXPECT_THAT(replays.job(0).calls, ElementsAre(1, 2));
  EXPECT_THAT(replays.job(0).makes, ElementsAre(middle, last));
  EXPECT_EQ(replays.needed_until(kept), replays.dropped(kept));
}

TEST(ReplayJobs, LeaveWhatLaterOnesReadUntilTheLastHasReadIt) {
  GraphBuilder graph;
  const int kept = graph.save(graph.call({}), "kept");
  const int shared = graph.call({.reads = {0}, .makes = {500}, .ns = 3});
  const int one = graph.save(graph.call({.reads = {shared}, .makes = {10}, .ns = 4}), "recomputed");
  const int two = graph.save(graph.call({.reads = {shared}, .makes = {20}, .ns = 5}), "recomputed");
  const Replays replays(graph.profile({two, one, kept}));
  ASSERT_EQ(replays.result.jobs.size(), 2U);
  EXPECT_EQ(replays.job(0).ns, 8);
  EXPECT_THAT(replays.job(1).calls, ElementsAre(2)) << "what both read is there";
  EXPECT_EQ(replays.job(0).transient_bytes, 500);
  EXPECT_EQ(replays.job(1).transient_bytes, 500);
  ASSERT_EQ(replays.result.cached.size(), 2U);
  EXPECT_EQ(replays.result.cached[0].moment, replays.moment(0));
  EXPECT_EQ(replays.result.cached[0].bytes, 500);
  EXPECT_EQ(replays.result.cached[1].moment, replays.moment(1));
  EXPECT_EQ(replays.result.cached[1].bytes, 0);
}

TEST(ReplayJobs, RepeatCallsAgainWhereTheirResultsMayNotStay) {
  GraphBuilder graph;
  const int kept = graph.save(graph.call({}), "kept");
  const int shared = graph.call({.reads = {0}, .makes = {500}});
  const int one = graph.save(graph.call({.reads = {shared}, .makes = {10}}), "recomputed");
  const int two = graph.save(graph.call({.reads = {shared}, .makes = {20}}), "recomputed");
  const Replays replays(graph.profile({two, one, kept}), kRecompute, Bytes(499));
  EXPECT_THAT(replays.job(1).calls, ElementsAre(1, 2));
  EXPECT_THAT(replays.result.cached, IsEmpty());
}

TEST(ReplayJobs, PassOnARecomputedBufferThatIsDroppedBeforeItsLastReader) {
  GraphBuilder graph;
  const int kept = graph.save(graph.call({}), "kept");
  const int middle = graph.save(graph.call({.reads = {0}, .makes = {700}}), "recomputed");
  const int last = graph.save(graph.call({.reads = {1}}), "recomputed");
  const Replays replays(graph.profile({middle, last, kept}));
  ASSERT_EQ(replays.result.jobs.size(), 2U);
  EXPECT_THAT(replays.job(1).calls, ElementsAre(2));
  EXPECT_EQ(replays.job(1).transient_bytes, 700);
  ASSERT_EQ(replays.result.cached.size(), 2U);
  EXPECT_EQ(replays.result.cached[0].moment, replays.dropped(middle));
  EXPECT_EQ(replays.result.cached[0].bytes, 700);
  EXPECT_EQ(replays.result.cached[1].bytes, 0);
}

TEST(ReplayJobs, StartFromAnchorsWhichAreKeptUntilTheLastReplay) {
  GraphBuilder graph(2);
  graph.save(graph.call({.layer = 0}), "kept", 0);
  const int enters = graph.call({.layer = 0, .reads = {0}, .makes = {800}});
  const int one = graph.save(graph.call({.layer = 1, .reads = {enters}}), "recomputed", 1);
  const int two = graph.save(graph.call({.layer = 1, .reads = {enters}}), "recomputed", 1);
  const Replays replays(graph.profile({two, one, 0}));
  ASSERT_EQ(replays.plan.chunks[0].anchors.size(), 1U);
  const int anchor = 3;
  EXPECT_THAT(replays.job(0).reads, ElementsAre(anchor));
  EXPECT_EQ(replays.needed_until(anchor), replays.dropped(one));
  EXPECT_THAT(replays.result.anchored, ElementsAre(replays.model.calls[1].ends));
}

TEST(ReplayJobs, UseWhatTheModelStillHolds) {
  GraphBuilder graph;
  graph.save(graph.call({}), "kept");
  graph.save(graph.call({.reads = {0}}), "recomputed");
  Profile profile = graph.profile();
  testing::add_timelines(profile);
  const Plan plan = plan_by(profile, kRecompute);
  ChunkProfile& chunk = profile.chunks[0];
  chunk.buffers[1].last_forward_use = -1;
  const PassModel model = model_of(chunk, Bytes(0));
  EXPECT_THAT(replays_of(model, plan.chunks[0]).jobs, IsEmpty());
}

TEST(ReplayJobs, ReleaseInForwardOnceTheCallThatMakesABufferHasEnded) {
  GraphBuilder graph;
  const int inside = graph.save(graph.call({.reads = {}}), "recomputed");
  const int read = graph.call({.reads = {}});
  graph.call({.reads = {read}});
  const int later = graph.save(read, "recomputed");
  const Replays replays(graph.profile());
  EXPECT_EQ(replays.result.given_up[static_cast<std::size_t>(inside)], replays.model.calls[0].ends);
  EXPECT_EQ(replays.result.given_up[static_cast<std::size_t>(later)], replays.model.save_moment[1]);
}

TEST(ReplayJobs, AreRefusedWhereTheMakerIsUnknown) {
  GraphBuilder graph;
  const int outside = graph.outside(true);
  graph.call({.reads = {outside}});
  graph.save(outside, "recomputed");
  Profile profile = graph.profile();
  testing::add_timelines(profile);
  Plan plan = plan_by(profile, "");
  plan.chunks[0].decisions[0].action.kind = ActionKind::kRecompute;
  const PassModel model = model_of(profile.chunks[0], Bytes(0));
  try {
    (void)replays_of(model, plan.chunks[0]);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("buffer 0 (recomputed aten::use) is to be recomputed, but "
                                        "the operator that made it is unknown"));
  }
}

TEST(ReplayJobs, RepeatEveryCallOfALayerOnceWhenAllOfItIsRecomputed) {
  const Replays replays(testing::llama_profile(4), R"([[rule]]
group_inputs = 1
action = "keep"
[[rule]]
layers = "0..3"
action = "recompute"
)");
  std::vector<int> times(replays.model.calls.size());
  for (const ReplayJob& job : replays.result.jobs) {
    for (const int call : job.calls) ++times[static_cast<std::size_t>(call)];
  }
  EXPECT_EQ(replays.result.jobs.size(), 4U) << "one a layer";
  EXPECT_EQ(*std::max_element(times.begin(), times.end()), 1);
}

}  // namespace
}  // namespace spillway
