/// How calls and times of passes are matched with those of the profiled pass.
#include "plan/profile/call_key.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "plan/profile/timeline.hpp"

namespace spillway {
namespace {

ChunkProfile chunk_of_calls() {
  ChunkProfile chunk;
  const auto add = [&](const char* name, int saves, int ordinal) {
    OperatorProfile each;
    each.name = name;
    each.saves = saves;
    each.ordinal = ordinal;
    chunk.operators.push_back(each);
  };
  add("aten::arange", 0, -1);  // A table, made once.
  add("aten::cos", 0, 0);
  add("aten::mm", 0, 0);
  add("aten::mul", 1, 0);
  add("aten::_to_copy", 1, -1);  // A cast of a weight, kept.
  add("aten::mul", 1, 1);
  add("aten::mul", 2, 0);
  chunk.calls_before_first_save = 3;
  return chunk;
}

struct PassCall {
  const char* name;
  int saves = 0;
  int ordinal = 0;
};

std::vector<CallKey> keys_of(const std::vector<PassCall>& calls) {
  const auto before = static_cast<int>(std::ranges::count(calls, 0, &PassCall::saves));
  std::vector<CallKey> keys;
  for (const PassCall& call : calls) {
    const auto number = static_cast<int>(keys.size());
    keys.push_back(call_key(number, call.saves, call.ordinal, call.name, before));
  }
  return keys;
}

TEST(CallKey, CountsBackFromTheFirstSaveWhatComesBeforeIt) {
  // The second call before the save, whatever the pass ran before it and however it is counted.
  EXPECT_EQ(call_key(5, 0, 3, "aten::mm", 7), call_key(0, 0, -1, "aten::mm", 2));
  EXPECT_NE(call_key(5, 0, 3, "aten::mm", 7), call_key(5, 0, 3, "aten::mm", 8));
  EXPECT_NE(call_key(5, 0, 3, "aten::mm", 7), call_key(5, 0, 3, "aten::mul", 7));
}

TEST(CallKey, CountsFromTheLastSaveWhatComesAfterTheFirst) {
  EXPECT_EQ(call_key(5, 1, 3, "aten::mm", 7), call_key(9, 1, 3, "aten::mm", 2));
  EXPECT_NE(call_key(5, 1, 3, "aten::mm", 7), call_key(5, 1, 2, "aten::mm", 7));
  EXPECT_NE(call_key(5, 1, 3, "aten::mm", 7), call_key(5, 2, 3, "aten::mm", 7));
  // What reads nothing of the pass is counted apart.
  EXPECT_NE(call_key(5, 1, 0, "aten::mm", 7), call_key(5, 1, -1, "aten::mm", 7));
}

TEST(CallIndex, FindsAllThatBelongsToACallInTheGivenOrder) {
  const CallIndex index({{{2, 0, "aten::mul"}, 7},
                         {{1, 0, "aten::mul"}, 8},
                         {{2, 0, "aten::mul"}, 3},
                         {{2, 0, "aten::add"}, 9}});
  std::vector<int> found;
  for (const auto& [key, item] : index.find({2, 0, "aten::mul"})) found.push_back(item);
  EXPECT_EQ(found, (std::vector<int>{7, 3}));
  EXPECT_TRUE(index.find({2, 1, "aten::mul"}).empty());
  EXPECT_TRUE(index.find({2, 0, "aten::mm"}).empty());
  EXPECT_TRUE(CallIndex().find({}).empty());
}

TEST(PassCalls, AreFoundWhereAPassHasFewer) {
  const std::vector<CallKey> later =
      keys_of({{"aten::mm", 0, 0}, {"aten::mul", 1, 0}, {"aten::mul", 1, 1}, {"aten::mul", 2, 0}});
  EXPECT_EQ(match_calls(chunk_of_calls(), later), (std::vector<int>{2, 3, 5, 6}));
}

TEST(PassCalls, AreSkippedWhereAPassHasMoreOrOthers) {
  const std::vector<CallKey> other = keys_of({{"aten::empty", 0, -1},
                                              {"aten::arange", 0, -1},
                                              {"aten::sin", 0, 0},
                                              {"aten::mm", 0, 0},
                                              {"aten::add", 1, 0},
                                              {"aten::mul", 1, 0},
                                              {"aten::mul", 3, 0}});
  EXPECT_EQ(match_calls(chunk_of_calls(), other), (std::vector<int>{-1, 0, -1, 2, -1, 3, -1}));
}

TEST(PassCalls, GiveTheirTimeAndBytesToTheNextCallIfSkipped) {
  const std::vector<Moment> moments = {
      {MomentKind::kCallBegins, 0, 1, 10}, {MomentKind::kCallEnds, 0, 2, 90},
      {MomentKind::kCallBegins, 1, 4, 20}, {MomentKind::kSave, 0, 8, 30},
      {MomentKind::kCallEnds, 1, 16, -40}, {MomentKind::kBackwardBegins, -1, 32, 50}};
  const std::vector<Moment> wanted = {{MomentKind::kCallBegins, 7, 7, 90},
                                      {MomentKind::kSave, 0, 8, 30},
                                      {MomentKind::kCallEnds, 7, 16, -40},
                                      {MomentKind::kBackwardBegins, -1, 32, 50}};
  EXPECT_EQ(remapped(moments, {-1, 7}), wanted);
}

/// Forward of the calls above with one save, and its backward; of each call the end takes `ns`.
std::vector<Moment> moments_of_calls(const std::vector<int>& calls, std::int64_t ns) {
  std::vector<Moment> moments;
  for (const int call : calls) {
    moments.push_back({MomentKind::kCallBegins, call, 0, 0});
    moments.push_back({MomentKind::kCallEnds, call, ns, 0});
  }
  moments.push_back({MomentKind::kSave, 0, 1, 0});
  moments.push_back({MomentKind::kBackwardBegins, -1, 2, 0});
  moments.push_back({MomentKind::kUnpack, 0, 3, 0});
  moments.push_back({MomentKind::kEnd, -1, 4, 0});
  return moments;
}

TimedPass timed_pass(std::vector<int> numbers, std::vector<Moment> moments) {
  return {0, std::move(numbers), std::make_shared<const std::vector<Moment>>(std::move(moments))};
}

TEST(TimesOfLaterPasses, CountNothingForCallsThatOnlyTheFirstPassMade) {
  Profile profile;
  profile.chunks.push_back(chunk_of_calls());
  ChunkProfile& chunk = profile.chunks.front();
  chunk.sites.emplace_back();
  chunk.buffers.emplace_back().id = 0;
  chunk.unpack_order = {0};
  add_timeline(moments_of_calls({0, 1, 2, 3, 4, 5, 6}, 1000), Bytes(0), chunk);
  ASSERT_EQ(chunk.forward_ns, 7003);
  const std::optional<Profile> fresh =
      with_times(profile, {timed_pass({2, 3, 5, 6}, moments_of_calls({0, 1, 2, 3}, 10))});
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->chunks[0].forward_ns, 43);
  EXPECT_EQ(fresh->chunks[0].backward_ns, 7);
  const std::vector<OperatorProfile>& operators = fresh->chunks[0].operators;
  EXPECT_EQ(operators[0].device_ns, 0);  // The table.
  EXPECT_EQ(operators[2].device_ns, 10);
  EXPECT_EQ(operators[4].device_ns, 0);  // The cast.
  EXPECT_EQ(operators[6].device_ns, 10);
}

TEST(TimesOfLaterPasses, IgnoreAPassThatSavedLess) {
  Profile profile;
  profile.chunks.push_back(chunk_of_calls());
  ChunkProfile& chunk = profile.chunks.front();
  chunk.sites.resize(2);
  chunk.buffers.emplace_back().id = 0;
  std::vector<Moment> moments = moments_of_calls({0}, 1000);
  moments.insert(moments.begin() + 2, {MomentKind::kSave, 1, 5, 0});
  add_timeline(std::move(moments), Bytes(0), chunk);
  EXPECT_FALSE(with_times(profile, {timed_pass({0}, moments_of_calls({0}, 10))}));
}

}  // namespace
}  // namespace spillway
