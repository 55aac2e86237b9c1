/// The profile, the plan that is executed, and the plans for other schedules; internal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/control/controlled_session.hpp"
#include "plan/control/plan_cache.hpp"
#include "plan/control/step_modes.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway {

class CurrentPlan {
 public:
  /// `recompute_cache`: the limit of plans that have none. `adopted` is called for each plan that
  /// is adopted.
  CurrentPlan(StepModes& modes, ControlledSession& session, std::optional<Bytes> recompute_cache,
              std::function<void()> adopted);

  /// Of the last recording step; null before.
  [[nodiscard]] const std::shared_ptr<const Profile>& profile() const noexcept { return profile_; }
  /// Whether a profile that was recorded because of unknown saves is worth replacing it: it has
  /// sites that this one does not have, and at least as many as it lacks. Precondition: there is
  /// one.
  [[nodiscard]] bool is_improved_by(const Profile& fresh) const;
  void set_profile(Profile profile) {
    profile_ = std::make_shared<const Profile>(std::move(profile));
  }
  /// Null before the first one.
  [[nodiscard]] const std::shared_ptr<const Plan>& plan() const noexcept { return plan_; }
  /// The one that the plan is, or will be, made for.
  [[nodiscard]] const PassSchedule& schedule() const noexcept { return schedule_; }
  void set_schedule(PassSchedule schedule) { schedule_ = std::move(schedule); }

  /// Why buffers that the plan would recompute or move are kept or offloaded; as in the report.
  [[nodiscard]] const std::vector<std::string>& demoted() const noexcept { return demoted_; }
  void note_demoted(std::string text) { demoted_.push_back(std::move(text)); }

  /// A plan that the program gave: it is executed instead of any other.
  [[nodiscard]] bool is_given() const noexcept { return given_.has_value(); }
  /// Errors: InvalidArgument if it is not for the profile.
  void give(Plan plan);
  /// After a recording: adopts the given plan. Returns false if there is none, or if it is for
  /// another structure than the profile; it is forgotten then.
  [[nodiscard]] bool adopt_given();

  /// Executes `plan` from the next step on. The caller tells the modes.
  void adopt(Plan plan);
  /// Offloads everything until there is a plan.
  void adopt_interim();
  /// The same plan with other decisions or windows.
  void revise(Plan plan);

  /// Plans for other schedules than the current one.
  [[nodiscard]] PlanCache& cache() noexcept { return cache_; }
  /// Caches the plan for the current schedule, or the problem why there is none, and adopts the one
  /// for another schedule. Returns false if that is not cached.
  [[nodiscard]] bool switch_to(PassSchedule schedule, PlanningProblem& problem);

 private:
  void cache_plan(const PlanningProblem& problem);

  StepModes& modes_;
  ControlledSession& session_;
  std::optional<Bytes> recompute_cache_;
  std::function<void()> adopted_;
  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<const Plan> plan_;
  std::optional<Plan> given_;
  PassSchedule schedule_;
  std::vector<std::string> demoted_;
  PlanCache cache_;
};

}  // namespace spillway
