#include "plan/control/step_modes.hpp"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using M = StepMode;
using E = ModeEvent;
using testing::error_text;
using ::testing::HasSubstr;

constexpr M kRecording = M::kRecording;
constexpr M kInterim = M::kInterim;
constexpr M kVerifying = M::kVerifying;
constexpr M kTiming = M::kTiming;
constexpr M kSteady = M::kSteady;

std::vector<M> all_modes() { return {kRecording, kInterim, kVerifying, kTiming, kSteady}; }
std::vector<E> all_events() {
  std::vector<E> all;
  for (std::size_t i = 0; i < kModeEvents; ++i) all.push_back(static_cast<E>(i));
  return all;
}

std::set<M> due_in(const StepModes& modes) {
  std::set<M> due;
  for (const M mode : all_modes()) {
    if (mode != kSteady && modes.due(mode)) due.insert(mode);
  }
  return due;
}

StepModes with(const std::set<M>& due) {
  for (const StepModes& each : StepModes::all()) {
    if (due_in(each) == due) return each;
  }
  ADD_FAILURE() << "not every set of modes is a state";
  return {};
}

/// Where an event leads from each mode if nothing else is due: the table, written once more, so
/// that a change of one of the two must be meant. What is missing is impossible.
const std::map<std::pair<M, E>, M> kExpected = {
    {{kRecording, E::kRecordingAsked}, kRecording},
    {{kInterim, E::kRecordingAsked}, kRecording},
    {{kVerifying, E::kRecordingAsked}, kRecording},
    {{kTiming, E::kRecordingAsked}, kRecording},
    {{kSteady, E::kRecordingAsked}, kRecording},
    {{kRecording, E::kRecordingNotNeeded}, kSteady},
    {{kRecording, E::kPlanMissing}, kRecording},
    {{kInterim, E::kPlanMissing}, kInterim},
    {{kVerifying, E::kPlanMissing}, kInterim},
    {{kTiming, E::kPlanMissing}, kInterim},
    {{kSteady, E::kPlanMissing}, kInterim},
    {{kRecording, E::kPlanAdopted}, kRecording},
    {{kInterim, E::kPlanAdopted}, kVerifying},
    {{kVerifying, E::kPlanAdopted}, kVerifying},
    {{kTiming, E::kPlanAdopted}, kVerifying},
    {{kSteady, E::kPlanAdopted}, kVerifying},
    {{kInterim, E::kVerifiedPlanAdopted}, kSteady},
    {{kVerifying, E::kVerifiedPlanAdopted}, kSteady},
    {{kTiming, E::kVerifiedPlanAdopted}, kTiming},
    {{kSteady, E::kVerifiedPlanAdopted}, kSteady},
    {{kRecording, E::kVerificationAsked}, kRecording},
    {{kInterim, E::kVerificationAsked}, kInterim},
    {{kVerifying, E::kVerificationAsked}, kVerifying},
    {{kTiming, E::kVerificationAsked}, kVerifying},
    {{kSteady, E::kVerificationAsked}, kVerifying},
    {{kRecording, E::kTimesAsked}, kRecording},
    {{kInterim, E::kTimesAsked}, kInterim},
    {{kVerifying, E::kTimesAsked}, kVerifying},
    {{kTiming, E::kTimesAsked}, kTiming},
    {{kSteady, E::kTimesAsked}, kTiming},
    {{kRecording, E::kTimesNotNeeded}, kRecording},
    {{kInterim, E::kTimesNotNeeded}, kInterim},
    {{kVerifying, E::kTimesNotNeeded}, kVerifying},
    {{kTiming, E::kTimesNotNeeded}, kSteady},
    {{kSteady, E::kTimesNotNeeded}, kSteady},
    {{kRecording, E::kRecordingBegins}, kSteady},
    {{kInterim, E::kStepBegins}, kInterim},
    {{kVerifying, E::kStepBegins}, kSteady},
    {{kTiming, E::kStepBegins}, kTiming},
    {{kSteady, E::kStepBegins}, kSteady},
    {{kTiming, E::kTimedStepBegins}, kSteady},
};

TEST(StepModes, BeginWithARecording) {
  EXPECT_EQ(StepModes().next(), kRecording);
  EXPECT_EQ(due_in(StepModes()), std::set{kRecording});
  EXPECT_EQ(StepModes::all().size(), 16U);
}

TEST(StepModes, HaveTheTransitionsOfTheTable) {
  for (const M mode : all_modes()) {
    const StepModes before = mode == kSteady ? with({}) : with({mode});
    ASSERT_EQ(before.next(), mode);
    for (const E event : all_events()) {
      const std::optional<StepModes> after = before.after(event);
      const auto expected = kExpected.find({mode, event});
      ASSERT_EQ(after.has_value(), expected != kExpected.end())
          << to_string(mode) << ", " << to_string(event);
      if (after) {
        EXPECT_EQ(after->next(), expected->second) << to_string(mode) << ", " << to_string(event);
      }
    }
  }
}

TEST(StepModes, KeepWhatAnEventDoesNotDealWith) {
  struct Effect {
    std::set<M> makes_due;
    std::set<M> deals_with;
  };
  const std::map<E, Effect> effects = {
      {E::kRecordingAsked, {{kRecording}, {}}},
      {E::kRecordingNotNeeded, {{}, {kRecording}}},
      {E::kPlanMissing, {{kInterim, kVerifying}, {}}},
      {E::kPlanAdopted, {{kVerifying}, {kInterim}}},
      {E::kVerifiedPlanAdopted, {{}, {kInterim, kVerifying}}},
      {E::kVerificationAsked, {{kVerifying}, {}}},
      {E::kTimesAsked, {{kTiming}, {}}},
      {E::kTimesNotNeeded, {{}, {kTiming}}},
      {E::kRecordingBegins, {{}, {kRecording}}},
      {E::kStepBegins, {{}, {kVerifying}}},
      {E::kTimedStepBegins, {{}, {kVerifying, kTiming}}},
  };
  int possible = 0;
  for (const StepModes& before : StepModes::all()) {
    for (const E event : all_events()) {
      const std::optional<StepModes> after = before.after(event);
      if (!after) continue;
      ++possible;
      std::set<M> expected = due_in(before);
      for (const M mode : effects.at(event).deals_with) expected.erase(mode);
      for (const M mode : effects.at(event).makes_due) expected.insert(mode);
      EXPECT_EQ(due_in(*after), expected) << to_string(before.next()) << ", " << to_string(event);
    }
  }
  // Six events are possible in all 16 states, two in those where a recording is due, two in the
  // others, and one where times are due, but neither a recording nor a plan.
  EXPECT_EQ(possible, 16 * 6 + 8 * 2 + 8 * 2 + 2);
}

TEST(StepModes, NameTheModeAndAnEventThatIsImpossibleThere) {
  StepModes modes;
  const std::string text = error_text<InvalidArgument>([&] { modes.on(E::kTimedStepBegins); });
  EXPECT_THAT(text, HasSubstr("[step] while the next step is recording"));
  EXPECT_THAT(text, HasSubstr("timed step begins"));
  EXPECT_EQ(modes, StepModes()) << "an impossible event changes nothing";
}

TEST(StepModes, DealWithOneAfterAnother) {
  StepModes modes;
  EXPECT_EQ(modes.begin(/*verifies=*/false), kRecording);
  modes.on(E::kPlanMissing);
  EXPECT_EQ(modes.begin(/*verifies=*/false), kInterim);
  EXPECT_EQ(modes.begin(/*verifies=*/false), kInterim) << "until there is a plan";
  modes.on(E::kPlanAdopted);
  modes.on(E::kTimesAsked);
  EXPECT_EQ(modes.begin(/*verifies=*/true), kVerifying);
  EXPECT_EQ(modes.begin(/*verifies=*/false), kTiming);
  EXPECT_EQ(modes.begin(/*verifies=*/false), kSteady);
  EXPECT_EQ(modes.begin(/*verifies=*/true), kVerifying) << "because other ranks verify";
  EXPECT_EQ(modes.begin(/*verifies=*/false), kSteady);
}

TEST(StepModes, TimeAPlanThatHasNothingToVerifyAtOnce) {
  StepModes modes = with({kVerifying, kTiming});
  EXPECT_EQ(modes.next(), kVerifying);
  EXPECT_EQ(modes.begin(/*verifies=*/false), kTiming);
  EXPECT_EQ(modes, with({}));
}

TEST(StepModes, GoOnAfterARecordingThatWasNotUsed) {
  StepModes modes = with({kRecording, kVerifying});
  EXPECT_EQ(modes.begin(/*verifies=*/true), kRecording);
  EXPECT_EQ(modes.next(), kVerifying);
}

TEST(StepModes, AreDrawnInTheDocumentationAsTheTableHasThem) {
  std::ifstream file(SPILLWAY_DOCS "/architecture.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(mode_diagram())) << "docs/architecture.md should have:\n"
                                                     << mode_diagram();
}

}  // namespace
}  // namespace spillway
