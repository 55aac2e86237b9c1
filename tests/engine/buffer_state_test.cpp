#include "engine/buffer_state.hpp"

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using S = BufferState;
using E = BufferEvent;
using testing::error_text;
using ::testing::HasSubstr;

std::vector<S> all_states() {
  std::vector<S> all;
  for (std::size_t i = 0; i < kBufferStates; ++i) all.push_back(static_cast<S>(i));
  return all;
}
std::vector<E> all_events() {
  std::vector<E> all;
  for (std::size_t i = 0; i < kBufferEvents; ++i) all.push_back(static_cast<E>(i));
  return all;
}

/// The table, written once more: a change of one of the two must be meant.
const std::map<std::pair<S, E>, S> kExpected = {
    {{S::kResident, E::kHold}, S::kHeld},         {{S::kResident, E::kCopyOut}, S::kCopying},
    {{S::kResident, E::kUse}, S::kResident},      {{S::kResident, E::kDiscard}, S::kDiscarded},
    {{S::kResident, E::kSplit}, S::kInParts},     {{S::kHeld, E::kCopyOut}, S::kCopying},
    {{S::kHeld, E::kTake}, S::kResident},         {{S::kHeld, E::kUse}, S::kHeld},
    {{S::kCopying, E::kTake}, S::kInPlace},       {{S::kCopying, E::kRelease}, S::kOffloaded},
    {{S::kCopying, E::kUse}, S::kCopying},        {{S::kInPlace, E::kUse}, S::kInPlace},
    {{S::kOffloaded, E::kReload}, S::kReloading}, {{S::kOffloaded, E::kAdopt}, S::kResident},
    {{S::kReloading, E::kWait}, S::kReloaded},    {{S::kReloaded, E::kWait}, S::kReloaded},
    {{S::kDiscarded, E::kAdopt}, S::kResident},   {{S::kDiscarded, E::kRecompute}, S::kResident},
    {{S::kInParts, E::kGather}, S::kGathering},   {{S::kGathering, E::kGathered}, S::kResident},
};

TEST(BufferState, HasTheTransitionsOfTheTable) {
  for (const S state : all_states()) {
    for (const E event : all_events()) {
      std::optional<S> expected;
      if (const auto found = kExpected.find({state, event}); found != kExpected.end()) {
        expected = found->second;
      } else if (state != S::kFreed && event == E::kKeep) {
        expected = S::kResident;
      } else if (state != S::kFreed && event == E::kFree) {
        expected = S::kFreed;
      }
      EXPECT_EQ(transition(state, event), expected)
          << to_string(state) << " on " << to_string(event);
    }
  }
}

TEST(BufferState, NamesBothSidesOfAnImpossibleTransition) {
  const std::string text =
      error_text<InvalidArgument>([] { (void)next_state(S::kOffloaded, E::kRelease); });
  EXPECT_THAT(text, HasSubstr("a buffer that is offloaded cannot release"));
  EXPECT_THAT(text, HasSubstr("only one that is copying can"));
}

TEST(BufferState, TakesMemoryOfTheDeviceUnlessItWasMovedOrFreed) {
  for (const S state : all_states()) {
    const bool elsewhere = state == S::kOffloaded || state == S::kDiscarded ||
                           state == S::kInParts || state == S::kFreed;
    EXPECT_EQ(is_on_device(state), !elsewhere) << to_string(state);
    if (is_in_window(state) || is_copied_in_place(state)) {
      EXPECT_TRUE(is_on_device(state)) << to_string(state);
    }
  }
}

TEST(BufferState, IsDrawnInTheDocumentationAsTheTableHasIt) {
  std::ifstream file(SPILLWAY_DOCS "/architecture.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(state_diagram())) << "docs/architecture.md should have:\n"
                                                      << state_diagram();
}

}  // namespace
}  // namespace spillway
