#include "plan/profile/pass_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/graph_builder.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;

/// a -> b -> c: `a` is saved by the call that reads it, `b` by the one that makes it.
Profile three_calls() {
  GraphBuilder graph;
  const int a = graph.call({.makes = {1000}, .ns = 10});
  const int b = graph.call({.reads = {a}, .makes = {300}, .ns = 20});
  graph.save(a, "a");
  graph.save(b, "b");
  graph.call({.reads = {b}, .makes = {50}, .ns = 30});
  Profile profile = graph.profile();
  testing::add_timelines(profile);
  return profile;
}

std::vector<MomentKind> kinds(const ChunkProfile& chunk) {
  std::vector<MomentKind> found;
  for (const Moment& moment : chunk.timeline) found.push_back(moment.kind);
  return found;
}

TEST(PassModel, FindsEveryMomentOfABuffer) {
  const Profile profile = three_calls();
  using enum MomentKind;
  ASSERT_THAT(kinds(profile.chunks[0]),
              ElementsAre(kCallBegins, kCallEnds, kCallBegins, kSave, kSave, kCallEnds, kCallBegins,
                          kCallEnds, kBackwardBegins, kUnpack, kUnpack, kDrop, kDrop, kEnd));
  const PassModel model = model_of(profile.chunks[0], Bytes(0));
  const BufferLife& a = model.buffers[0];
  EXPECT_EQ(a.bytes, 1000);
  EXPECT_EQ(a.allocated, 1);
  EXPECT_EQ(a.saved, 3);
  EXPECT_EQ(a.last_forward_use, 5);
  EXPECT_EQ(a.first_need, 10);
  EXPECT_EQ(a.last_need, 10);
  EXPECT_EQ(a.dropped, 12);
  EXPECT_TRUE(a.movable);
  EXPECT_EQ(model.buffers[1].allocated, 4) << "saved while its call runs";
  EXPECT_EQ(model.buffers[1].last_forward_use, 7);
  EXPECT_EQ(model.backward_begins, 8);
  EXPECT_EQ(model.end, 13);
  EXPECT_THAT(model.save_moment, ElementsAre(3, 4));
  EXPECT_THAT(model.unpack_moment, ElementsAre(9, 10));
  EXPECT_THAT(model.last_read, ElementsAre(5, 7, 7));
}

TEST(PassModel, AddsUpTheTimesOfCallsAndOfTheirInnerCalls) {
  Profile profile = three_calls();
  const PassModel model = model_of(profile.chunks[0], Bytes(0));
  EXPECT_EQ(model.calls[1].begins, 2);
  EXPECT_EQ(model.calls[1].ends, 5);
  EXPECT_EQ(model.calls[1].ns, 20);
  EXPECT_EQ(model.forward_ns, 60);
  EXPECT_EQ(model.backward_ns, 120);

  ChunkProfile& chunk = profile.chunks[0];
  chunk.timeline = {{MomentKind::kCallBegins, 0, 1, 0},       {MomentKind::kCallBegins, 1, 2, 0},
                    {MomentKind::kCallEnds, 1, 4, 0},         {MomentKind::kCallEnds, 0, 8, 0},
                    {MomentKind::kBackwardBegins, -1, 16, 0}, {MomentKind::kEnd, -1, 32, 0}};
  const PassModel nested = model_of(chunk, Bytes(0));
  EXPECT_EQ(nested.calls[0].ns, 14);
  EXPECT_EQ(nested.calls[1].ns, 4);
  EXPECT_EQ(nested.calls[2].begins, -1);
  EXPECT_EQ(nested.forward_ns, 31);
  EXPECT_EQ(nested.backward_ns, 32);
}

TEST(PassModel, RoundsToWhatTheAllocatorHandsOut) {
  const Profile profile = three_calls();
  const PassModel model = model_of(profile.chunks[0], Bytes(512));
  EXPECT_EQ(model.buffers[0].bytes, 1024);
  EXPECT_THAT(model.value_bytes, ElementsAre(1024, 512, 512));
}

TEST(PassModel, ExtendsWhatIsNeverDroppedOrReleasedToTheEnd) {
  Profile profile = three_calls();
  ChunkProfile& chunk = profile.chunks[0];
  std::erase_if(chunk.timeline,
                [](const Moment& moment) { return moment.kind == MomentKind::kDrop; });
  chunk.buffers[0].last_forward_use = -1;
  const PassModel model = model_of(chunk, Bytes(0));
  EXPECT_EQ(model.buffers[0].dropped, model.end);
  EXPECT_EQ(model.buffers[0].last_forward_use, model.end);
}

TEST(PassModel, NeedsATimeline) {
  ChunkProfile chunk;
  chunk.chunk = 3;
  try {
    (void)model_of(chunk, Bytes(0));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("[model] chunk 3 of the profile has no timeline"));
  }
}

TEST(SyntheticTimeline, HasTheTimesAndSizesOfTheModelItStandsFor) {
  const Profile profile = testing::llama_profile(16);
  const PassModel model = model_of(profile.chunks[0], profile.granularity);
  EXPECT_NEAR(static_cast<double>(model.forward_ns), 130e6, 1e5);
  EXPECT_NEAR(static_cast<double>(model.backward_ns), 248e6, 1e5);
  std::int64_t saved = 0;
  for (const BufferLife& life : model.buffers) saved += life.movable ? life.bytes : 0;
  EXPECT_GT(saved, 20LL << 30);
  EXPECT_LT(saved, 30LL << 30);
  for (const Moment& moment : profile.chunks[0].timeline) {
    EXPECT_GE(moment.untracked_bytes, 0);
    EXPECT_LT(moment.untracked_bytes, 3LL << 30);
  }
}

}  // namespace
}  // namespace spillway
