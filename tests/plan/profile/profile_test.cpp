#include "spillway/plan/profile.hpp"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/synthetic_profile.hpp"
#include "plan/support/synthetic_timeline.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/random_cases.hpp"
#include "util/json_fields.hpp"

namespace spillway {
namespace {

using testing::error_text;
using testing::Naming;
using testing::transformer_profile;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string_view::npos) << what;
  return at == std::string_view::npos ? text : text.replace(at, what.size(), by);
}

TEST(ProfileJson, GivesBackEveryModel) {
  for (const Naming naming : {Naming::kOwn, Naming::kLlama, Naming::kGpt2, Naming::kOwnExperts,
                              Naming::kMixtral, Naming::kQwenExperts}) {
    for (const bool casting : {false, true}) {
      const Profile profile =
          transformer_profile({.naming = naming, .layers = 3, .casting_norms = casting});
      EXPECT_EQ(profile_from_json(to_json(profile), "p.json"), profile);
    }
  }
  EXPECT_EQ(profile_from_json(to_json(Profile{}), "p.json"), Profile{});
}

TEST(ProfileJson, GivesBackAnyProfile) {
  const auto cases = static_cast<std::uint64_t>(testing::cases_of(500));
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    std::mt19937_64 random(seed);
    const Profile profile = testing::random_profile(random);
    const std::string text = to_json(profile);
    ASSERT_EQ(profile_from_json(text, "p.json"), profile) << "seed " << seed << "\n" << text;
    ASSERT_EQ(to_json(profile_from_json(text, "p.json")), text) << "seed " << seed;
  }
}

TEST(ProfileJson, HasLinesThatAPersonCanRead) {
  const std::string text = to_json(transformer_profile({.layers = 1}));
  EXPECT_EQ(text.find("{\n \"schema\": \"spillway.profile/5\",\n \"device\": "), 0U) << text;
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  EXPECT_LE(longest, 340U);
}

TEST(ProfileJson, RefusesNumbersThatAreNotFinite) {
  Profile profile;
  profile.link.back = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)to_json(profile); }),
            "[profile] a link speed is not a finite number; measure the link again");
}

struct WrongProfile {
  const char* what;
  const char* by;
  const char* text;
};

TEST(ProfileJson, SaysWhereWhatWasWantedAndWhatWasFound) {
  const std::string good = to_json(transformer_profile({.layers = 1}));
  for (const WrongProfile& each : {
           WrongProfile{
               "spillway.profile/5", "spillway.plan/5",
               "schema: \"spillway.profile/5\" wanted, found the text \"spillway.plan/5\""},
           {"spillway.profile/5", "spillway.profile/1",
            "schema: \"spillway.profile/5\" wanted, found \"spillway.profile/1\": another version "
            "of "
            "Spillway wrote it; create it with this version"},
           {"\"schema\"", "\"shema\"", "schema: missing; \"spillway.profile/5\" wanted"},
           {"\"pipeline_rank\"", "\"pipeline_rnk\"",
            "pipeline_rnk: unknown field; did you mean \"pipeline_rank\"?"},
           {"\"pipeline_rank\": 0,", "", "pipeline_rank: missing"},
           {"\"layers\": 1,", "\"layers\": \"1\",",
            "layers: a whole number wanted, found the text \"1\""},
           {"\"layers\": 1,", "\"layers\": 1.5,",
            "layers: a whole number wanted, found the number 1.5"},
           {"\"layers\": 1,", "\"layers\": 3000000000,",
            "layers: a whole number of 32 bits wanted, found the number 3000000000"},
           {"\"pipeline_rank\": 0", "\"pipeline_rank\": -1",
            "pipeline_rank: a number from 0 to 1000000 wanted, found -1"},
           {"\"first_layer\": 0", "\"first_layer\": 2000000",
            "chunks[0].first_layer: a number from 0 to 1000000 wanted, found 2000000"},
           {"\"out\":55300000000.0", "\"out\":null", "link.out: a number wanted, found null"},
           {"\"out\":55300000000.0", "\"out\":55300000000.0, \"slows_back\": -0.02",
            "link.slows_back: a share from 0 to 0.5 wanted, found -0.02"},
           {"\"device\": \"NVIDIA H200\"", "\"device\": [1]",
            "device: a text wanted, found a list"},
           {"\"usable\":true", "\"usable\":0",
            "chunks[0].buffers[0].recipe.usable: true or false wanted, found the number 0"},
           {"\"size\": 67108864", "\"size\": -1",
            "chunks[0].buffers[0].size: a number of bytes wanted, found the number -1"},
           {"\"fixed\": \"none\"", "\"fixed\": \"nine\"",
            "chunks[0].buffers[0].fixed: unknown word \"nine\"; did you mean \"none\"?"},
           {"\"id\": 1,", "\"id\": 7,",
            "chunks[0].buffers[1].id: 1, its index in the list, wanted, found 7"},
           {"\"call\":0}", "\"call\":99}",
            "chunks[0].buffers[0].producer.call: there is no operator 99; this chunk has 17"},
           {"{\"buffer\":0,", "{\"buffer\":-2,",
            "chunks[0].sites[0].buffer: there is no buffer -2; this chunk has 26"},
           {"\"sizes\":[8192,4096]", "\"sizes\":[8192]",
            "chunks[0].sites[0].strides: as many as sizes wanted"},
       }) {
    EXPECT_EQ(error_text<ConfigError>(
                  [&] { (void)profile_from_json(replaced(good, each.what, each.by), "p.json"); }),
              std::string("[profile] p.json: ") + each.text);
  }
}

TEST(ProfileJson, RefusesNumbersWhoseSumsWouldWrap) {
  Profile good = transformer_profile({.layers = 1});
  testing::add_timelines(good);
  good.chunks[0].later_untracked_bytes.emplace(good.chunks[0].timeline.size(), 0);
  ASSERT_EQ(profile_from_json(to_json(good), "p.json"), good);
  const auto refused = [&](const std::function<void(Profile&)>& change) {
    Profile profile = good;
    change(profile);
    const std::string text =
        error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); });
    return text.substr(std::string_view("[profile] p.json: ").size());
  };
  for (const std::uint64_t size : {(1ULL << 48U) + 1, 1ULL << 62U, ~0ULL}) {
    EXPECT_EQ(refused([&](Profile& each) { each.chunks[0].buffers[0].size = Bytes(size); }),
              "chunks[0].buffers[0].size: a number of bytes up to 281474976710656 wanted, found "
              "the number " +
                  std::to_string(size));
  }
  EXPECT_EQ(refused([](Profile& each) {
              for (ValueProfile& value : each.chunks[0].values) value.size = kMostBytes;
            }),
            "chunks[0].values[4]: with this one the sum of the list is 1407374883553280 bytes; at "
            "most 1125899906842624 bytes wanted");
  EXPECT_EQ(refused([](Profile& each) {
              for (auto& call : each.chunks[0].operators) call.device_ns = kMostWhole / 2;
            }),
            "chunks[0].operators[2]: with this one the sum of the list is 13510798882111488 ns; at "
            "most 9007199254740992 ns wanted");
  EXPECT_EQ(refused([](Profile& each) { each.chunks[0].forward_ns = std::int64_t{1} << 62U; }),
            "chunks[0].forward_ns: a whole number from -9007199254740992 to 9007199254740992 "
            "wanted, found the number 4611686018427387904");
  EXPECT_EQ(refused([](Profile& each) {
              each.chunks[0].timeline[3].untracked_bytes = -(std::int64_t{1} << 49U);
            }),
            "chunks[0].timeline.untracked_bytes[3]: bytes from -281474976710656 to "
            "281474976710656 wanted, found -562949953421312");
  EXPECT_EQ(refused([](Profile& each) {
              each.chunks[0].later_untracked_bytes->at(2) = std::int64_t{1} << 49U;
            }),
            "chunks[0].later_untracked_bytes[2]: bytes from -281474976710656 to 281474976710656 "
            "wanted, found 562949953421312");
  EXPECT_EQ(refused([](Profile& each) {
              each.chunks[0].sites[0].sizes = {1 << 30, 1 << 30};
              each.chunks[0].sites[0].strides = {1, 1};
            }),
            "chunks[0].sites[0].sizes[1]: from 0 to 8388608 wanted, so that a tensor has at most "
            "9007199254740992 elements; found 1073741824");
  EXPECT_EQ(refused([](Profile& each) { each.granularity = Bytes(2ULL << 30U); }),
            "granularity: at most 1073741824 bytes wanted, found 2147483648");
  EXPECT_EQ(refused([](Profile& each) { each.link.back = -1; }),
            "link.back: bytes per second from 0 to 1e15 wanted, found -1; measure the link again");
}

// One layer with fused norms: operator 0 makes value 2 of values 0 and 1, operator 1 reads that and
// a weight, value 3.
TEST(ProfileJson, RefusesAGraphThatContradictsItself) {
  struct Contradiction {
    std::function<void(ChunkProfile&)> change;
    const char* text;
  };
  const std::vector<Contradiction> contradictions = {
      {[](ChunkProfile& chunk) { chunk.operators[1].reads[0] = 999; },
       "operators[1].reads[0]: there is no value 999; this chunk has 34"},
      {[](ChunkProfile& chunk) { chunk.operators[1].makes.push_back(-1); },
       "operators[1].makes[2]: there is no value -1; this chunk has 34"},
      {[](ChunkProfile& chunk) { chunk.operators[1].reads[0] = 4; },
       "operators[1].reads[0]: value 4 is made by operator 1, which does not come before"},
      {[](ChunkProfile& chunk) { chunk.operators[0].makes.push_back(4); },
       "operators[0].makes[1]: value 4 does not say that this operator makes it"},
      {[](ChunkProfile& chunk) { chunk.operators[0].makes.clear(); },
       "values[2].call: operator 0 does not make it"},
      {[](ChunkProfile& chunk) { chunk.values[2].call = 99; },
       "values[2].call: there is no operator 99; this chunk has 17"},
      {[](ChunkProfile& chunk) { chunk.values[2].persistent = true; },
       "values[2].persistent: only what came from outside of the pass is persistent, and an "
       "operator made "
       "this"},
      {[](ChunkProfile& chunk) { chunk.values[2].buffer = 26; },
       "values[2].buffer: there is no buffer 26; this chunk has 26"},
      {[](ChunkProfile& chunk) { chunk.values[2].buffer = 1; },
       "values[2].buffer: buffer 1 does not say that it holds it"},
      {[](ChunkProfile& chunk) {
         chunk.values[6].buffer = -1;
         chunk.buffers[3].value = 34;
       },
       "buffers[3].value: there is no value 34; this chunk has 34"},
  };
  for (const Contradiction& each : contradictions) {
    Profile profile = transformer_profile({.layers = 1});
    each.change(profile.chunks[0]);
    EXPECT_EQ(error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); }),
              std::string("[profile] p.json: chunks[0].") + each.text);
  }
}

/// One layer, with moments of every kind.
Profile profile_with_a_timeline() {
  Profile profile = transformer_profile({.layers = 1});
  ChunkProfile& chunk = profile.chunks[0];
  for (BufferProfile& buffer : chunk.buffers) {
    buffer.first_unpack = buffer.last_unpack = buffer.last_forward_use = -1;
  }
  chunk.unpack_order = {0};
  chunk.timeline = {{MomentKind::kCallBegins, 0, 5, 10},
                    {MomentKind::kSave, 0, 7, -3},
                    {MomentKind::kCallEnds, 0, 0, 0},
                    {MomentKind::kDrop, 1, 0, 0},
                    {MomentKind::kBackwardBegins, -1, 0, 0},
                    {MomentKind::kUnpack, 0, 0, 0},
                    {MomentKind::kDrop, 0, 0, 0},
                    {MomentKind::kEnd, -1, 0, 0}};
  chunk.buffers[0].last_forward_use = 2;
  return profile;
}

TEST(ProfileJson, GivesBackATimelineInColumns) {
  const Profile profile = profile_with_a_timeline();
  const std::string text = to_json(profile);
  EXPECT_EQ(profile_from_json(text, "p.json"), profile);
  EXPECT_THAT(text, ::testing::HasSubstr("\"kind\":[0,2,1,5,3,4,5,6]"));
  EXPECT_THAT(text, ::testing::HasSubstr("\"untracked_bytes\":[10,-3,0,0,0,0,0,0]"));
}

TEST(ProfileJson, RefusesATimelineThatContradictsItself) {
  struct Contradiction {
    std::function<void(std::vector<Moment>&)> change;
    const char* text;
  };
  const std::vector<Contradiction> contradictions = {
      {[](auto& moments) { moments[0].index = 99; },
       "timeline.index[0]: there is no operator 99; this chunk has 17"},
      {[](auto& moments) { moments[1].index = -1; },
       "timeline.index[1]: there is no site -1; this chunk has 30"},
      {[](auto& moments) { moments[5].index = 1; },
       "timeline.index[5]: there is no unpack 1; this chunk has 1"},
      {[](auto& moments) { moments[6].index = 26; },
       "timeline.index[6]: there is no buffer 26; this chunk has 26"},
      {[](auto& moments) { moments.erase(moments.begin() + 4); },
       "timeline: backward must begin once"},
      {[](auto& moments) { moments[3].kind = MomentKind::kBackwardBegins; },
       "timeline: backward must begin once"},
      {[](auto& moments) { moments.pop_back(); },
       "timeline: the end must come once, as the last moment"},
      {[](auto& moments) { std::swap(moments[1], moments[5]); },
       "timeline.index[1]: \"unpack\" cannot come before backward begins"},
      {[](auto& moments) { std::swap(moments[2], moments[5]); },
       "timeline.index[2]: \"unpack\" cannot come before backward begins"},
      {[](auto& moments) {
         moments[6] = {MomentKind::kCallEnds, 0, 0, 0};
       },
       "timeline.index[6]: \"call ends\" cannot come after backward begins"},
  };
  for (const Contradiction& each : contradictions) {
    Profile profile = profile_with_a_timeline();
    each.change(profile.chunks[0].timeline);
    profile.chunks[0].buffers[0].last_forward_use = -1;
    EXPECT_EQ(error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); }),
              std::string("[profile] p.json: chunks[0].") + each.text);
  }
  Profile profile = profile_with_a_timeline();
  profile.chunks[0].buffers[0].last_forward_use = 8;
  EXPECT_EQ(error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); }),
            "[profile] p.json: chunks[0].buffers[0].last_forward_use: there is no moment 8; this "
            "chunk has 8");
}

TEST(ProfileJson, RefusesColumnsThatDoNotFitTogether) {
  const std::string good = to_json(profile_with_a_timeline());
  const auto text_of = [&](const char* what, const char* by) {
    return error_text<ConfigError>(
        [&] { (void)profile_from_json(replaced(good, what, by), "p.json"); });
  };
  EXPECT_EQ(
      text_of("\"untracked_bytes\":[10,", "\"untracked_bytes\":["),
      "[profile] p.json: chunks[0].timeline.untracked_bytes: as many as in kind wanted: 8, found "
      "7");
  EXPECT_EQ(text_of("\"kind\":[0,2,", "\"kind\":[0,7,"),
            "[profile] p.json: chunks[0].timeline.kind[1]: there is no kind 7; this chunk has 7");
  EXPECT_EQ(text_of("\"drop\"", "\"drip\""),
            "[profile] p.json: chunks[0].timeline.kinds[5]: unknown word \"drip\"; did you mean "
            "\"drop\"?");
}

TEST(ProfileJson, GivesBackWhatALaterPassHad) {
  Profile profile = profile_with_a_timeline();
  profile.chunks[0].later_untracked_bytes = {1, 2, 3, 4, 5, 6, 7, -8};
  const std::string text = to_json(profile);
  EXPECT_EQ(profile_from_json(text, "p.json"), profile);
  EXPECT_THAT(text, ::testing::HasSubstr("\"later_untracked_bytes\""));
  EXPECT_THAT(to_json(profile_with_a_timeline()),
              ::testing::Not(::testing::HasSubstr("later_untracked_bytes")));
  profile.chunks[0].later_untracked_bytes->pop_back();
  EXPECT_EQ(error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); }),
            "[profile] p.json: chunks[0].later_untracked_bytes: as many as moments in the timeline "
            "wanted: 8, "
            "found 7");
}

TEST(ProfileJson, TakesTwoBuffersThatHoldTheSameValue) {
  Profile profile = transformer_profile({.layers = 1});
  profile.chunks[0].values[4].buffer = -1;
  for (BufferProfile& buffer : profile.chunks[0].buffers) {
    if (buffer.value == 4) buffer.value = profile.chunks[0].buffers[0].value;
  }
  EXPECT_EQ(profile_from_json(to_json(profile), "p.json"), profile);
}

TEST(ProfileJson, RefusesTextThatIsNotADocument) {
  const auto text_of = [](const char* text) {
    return error_text<ConfigError>([&] { (void)profile_from_json(text, "p.json"); });
  };
  EXPECT_THAT(text_of(""),
              ::testing::StartsWith("[profile] p.json: the document: is not JSON: parse "
                                    "error at line 1, column 1"));
  EXPECT_THAT(
      text_of("{\n\"schema\": ]"),
      ::testing::StartsWith("[profile] p.json: the document: is not JSON: parse error at line 2, "
                            "column 11"));
  EXPECT_EQ(text_of("[]"), "[profile] p.json: the document: an object wanted, found a list");
}

TEST(ProfileJson, RefusesTwoChunksOfOneNumber) {
  Profile profile = testing::chunked_profile({.layers = 1}, 2);
  profile.chunks[1].chunk = 0;
  EXPECT_EQ(error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); }),
            "[profile] p.json: chunks[1].chunk: chunk 0 is there twice");
}

TEST(ProfileJson, WantsTheFirstSaveToBeThatOfThePosition) {
  Profile profile = transformer_profile({.layers = 1});
  profile.chunks[0].buffers[2].saves[0].scope = "elsewhere";
  EXPECT_EQ(error_text<ConfigError>([&] { (void)profile_from_json(to_json(profile), "p.json"); }),
            "[profile] p.json: chunks[0].buffers[2].saves: must begin with the saver and scope of "
            "position");
}

TEST(StructureDigest, KnowsPositionsAndSitesAndNothingElse) {
  const Profile profile = transformer_profile({.layers = 2});
  const std::string digest = structure_digest(profile);
  EXPECT_EQ(digest.size(), 16U);
  EXPECT_EQ(structure_digest(transformer_profile({.layers = 2, .tokens = 777})), digest);
  EXPECT_NE(structure_digest(transformer_profile({.layers = 3})), digest);
  EXPECT_NE(structure_digest(transformer_profile({.naming = Naming::kLlama, .layers = 2})), digest);
  Profile changed = profile;
  changed.chunks[0].buffers[5].position.ordinal = 77;
  EXPECT_NE(structure_digest(changed), digest);
  changed = profile;
  changed.chunks[0].chunk = 1;
  EXPECT_NE(structure_digest(changed), digest);
  changed = profile;
  changed.chunks[0].sites[3].dtype = "Double";
  EXPECT_NE(structure_digest(changed), digest);
  changed = profile;
  changed.chunks[0].sites[3].sizes.push_back(1);
  EXPECT_NE(structure_digest(changed), digest);
}

}  // namespace
}  // namespace spillway
