/// What the next step does: one mode, and the events that change it; internal.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// What a step does. Where several are due, the first of them comes first.
enum class StepMode : std::uint8_t {
  kRecording,  ///< Records a profile.
  kInterim,    ///< Nothing is planned yet for the profile and the schedule: offloads everything.
  kVerifying,  ///< Executes the plan, and compares what it recomputes and offloads with originals.
  kTiming,     ///< Executes the plan, and times its operators.
  kSteady,     ///< Executes the plan.
};
inline constexpr std::size_t kStepModes = 5;

enum class ModeEvent : std::uint8_t {
  kRecordingAsked,       ///< There is no profile, or it is not what steps do.
  kRecordingNotNeeded,   ///< A plan is given before anything was recorded.
  kPlanMissing,          ///< The planner has not answered yet, or no plan fits.
  kPlanAdopted,          ///< By rules, from a file, or from the planner.
  kVerifiedPlanAdopted,  ///< From the cache.
  kVerificationAsked,    ///< Or a verification showed nothing about some buffers.
  kTimesAsked,           ///< The times of a step are to replace those of the profile.
  kTimesNotNeeded,
  kRecordingBegins,  ///< A step begins that records.
  kStepBegins,       ///< Any other step begins.
  kTimedStepBegins,  ///< The same, and its operators are timed.
};
inline constexpr std::size_t kModeEvents = 11;

[[nodiscard]] std::string_view to_string(StepMode mode) noexcept;
[[nodiscard]] std::string_view to_string(ModeEvent event) noexcept;

/// The modes that are due, kSteady always. The next step has the first of them; those that it does
/// not deal with stay due.
class StepModes {
 public:
  /// Nothing was recorded yet.
  StepModes() = default;
  /// With those modes due.
  explicit StepModes(std::initializer_list<StepMode> due);

  [[nodiscard]] StepMode next() const noexcept;
  [[nodiscard]] bool due(StepMode mode) const noexcept;

  /// The state after the event; empty where it is impossible.
  [[nodiscard]] std::optional<StepModes> after(ModeEvent event) const noexcept;
  /// Errors: InvalidArgument that names the mode and an event that is impossible there.
  void on(ModeEvent event);

  /// A step begins. Returns its mode, which is next() but for verification: `verifies` says whether
  /// there is anything to compare.
  StepMode begin(bool verifies);

  /// Every state.
  [[nodiscard]] static std::vector<StepModes> all();

  friend bool operator==(const StepModes&, const StepModes&) = default;

 private:
  using Set = std::uint8_t;
  explicit StepModes(Set due) noexcept : due_(due) {}

  Set due_ = 1;  // By mode, without kSteady.
};

/// The modes and events as a Mermaid state diagram, for the documentation: from each mode where an
/// event may lead, whatever else is due.
[[nodiscard]] std::string mode_diagram();

}  // namespace spillway
