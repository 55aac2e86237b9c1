#include "plan/control/step_modes.hpp"

#include <bit>
#include <initializer_list>
#include <map>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using M = StepMode;
using E = ModeEvent;
using Set = std::uint8_t;

constexpr Set set_of(std::initializer_list<M> modes) {
  Set set = 0;
  for (const M mode : modes) set = static_cast<Set>(set | (1U << static_cast<unsigned>(mode)));
  return set;
}

struct Row {
  E event;
  std::string_view name;
  Set makes_due;
  Set deals_with;
  Set needs;     // Impossible unless all of them are due.
  Set excludes;  // Impossible if one of them is due.
};

constexpr Set kNone = 0;
constexpr Set kRecording = set_of({M::kRecording});
constexpr Set kUnplanned = set_of({M::kRecording, M::kInterim});

constexpr Row kRows[] = {
    {E::kRecordingAsked, "recording asked", kRecording, kNone, kNone, kNone},
    {E::kRecordingNotNeeded, "recording not needed", kNone, kRecording, kRecording, kNone},
    {E::kPlanMissing, "plan missing", set_of({M::kInterim, M::kVerifying}), kNone, kNone, kNone},
    {E::kPlanAdopted, "plan adopted", set_of({M::kVerifying}), set_of({M::kInterim}), kNone, kNone},
    {E::kVerifiedPlanAdopted, "verified plan adopted", kNone, set_of({M::kInterim, M::kVerifying}),
     kNone, kRecording},
    {E::kVerificationAsked, "verification asked", set_of({M::kVerifying}), kNone, kNone, kNone},
    {E::kTimesAsked, "times asked", set_of({M::kTiming}), kNone, kNone, kNone},
    {E::kTimesNotNeeded, "times not needed", kNone, set_of({M::kTiming}), kNone, kNone},
    {E::kRecordingBegins, "recording begins", kNone, kRecording, kRecording, kNone},
    {E::kStepBegins, "step begins", kNone, set_of({M::kVerifying}), kNone, kRecording},
    {E::kTimedStepBegins, "timed step begins", kNone, set_of({M::kVerifying, M::kTiming}),
     set_of({M::kTiming}), kUnplanned},
};

constexpr bool are_in_order() {
  std::size_t next = 0;
  for (const Row& row : kRows) {
    if (static_cast<std::size_t>(row.event) != next++) return false;
  }
  return next == kModeEvents;
}
static_assert(are_in_order(), "one row for each event");

const Row& row_of(E event) { return kRows[static_cast<std::size_t>(event)]; }

}  // namespace

std::string_view to_string(StepMode mode) noexcept {
  switch (mode) {
    case M::kRecording:
      return "recording";
    case M::kInterim:
      return "interim";
    case M::kVerifying:
      return "verifying";
    case M::kTiming:
      return "timing";
    case M::kSteady:
      return "steady";
  }
  return "unknown";
}

std::string_view to_string(ModeEvent event) noexcept { return row_of(event).name; }

StepModes::StepModes(std::initializer_list<StepMode> due)
    : due_(static_cast<Set>(set_of(due) & ~set_of({M::kSteady}))) {}

StepMode StepModes::next() const noexcept {
  return static_cast<M>(std::countr_zero(static_cast<Set>(due_ | set_of({M::kSteady}))));
}

bool StepModes::due(StepMode mode) const noexcept {
  return mode == M::kSteady || (due_ & set_of({mode})) != 0;
}

std::optional<StepModes> StepModes::after(ModeEvent event) const noexcept {
  const Row& row = row_of(event);
  if ((due_ & row.needs) != row.needs || (due_ & row.excludes) != 0) return std::nullopt;
  return StepModes(static_cast<Set>((due_ & ~row.deals_with) | row.makes_due));
}

void StepModes::on(ModeEvent event) {
  const std::optional<StepModes> next_state = after(event);
  if (!next_state) {
    throw InvalidArgument("step", "while the next step is " + std::string(to_string(next())) +
                                      ", this cannot happen: " + std::string(to_string(event)));
  }
  *this = *next_state;
}

StepMode StepModes::begin(bool verifies) {
  if (due(M::kRecording)) {
    on(E::kRecordingBegins);
    return M::kRecording;
  }
  const bool timed = !verifies && !due(M::kInterim) && due(M::kTiming);
  const M mode = due(M::kInterim) ? M::kInterim
                 : verifies       ? M::kVerifying
                 : timed          ? M::kTiming
                                  : M::kSteady;
  on(timed ? E::kTimedStepBegins : E::kStepBegins);
  return mode;
}

std::vector<StepModes> StepModes::all() {
  std::vector<StepModes> states;
  for (Set due = 0; due < set_of({M::kSteady}); ++due) states.push_back(StepModes(due));
  return states;
}

std::string mode_diagram() {
  std::map<std::pair<M, M>, std::vector<std::string_view>> arrows;
  for (const Row& row : kRows) {
    for (const StepModes& before : StepModes::all()) {
      const std::optional<StepModes> after = before.after(row.event);
      if (!after || after->next() == before.next()) continue;
      std::vector<std::string_view>& names = arrows[{before.next(), after->next()}];
      if (names.empty() || names.back() != row.name) names.push_back(row.name);
    }
  }
  std::string text = "stateDiagram-v2\n    [*] --> recording\n";
  for (const auto& [between, names] : arrows) {
    text += "    " + std::string(to_string(between.first)) + " --> " +
            std::string(to_string(between.second)) + ": ";
    for (std::size_t i = 0; i < names.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::string(names[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace spillway
