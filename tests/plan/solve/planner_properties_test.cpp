#include <algorithm>
#include <iostream>
#include <optional>

#include <gtest/gtest.h>

#include "plan/solve/planner_closed_bound.hpp"
#include "plan/solve/planner_search.hpp"
#include "plan/support/random_step.hpp"
#include "plan/support/replay_check.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/planner.hpp"
#include "support/random_cases.hpp"

namespace spillway {
namespace {

/// A random profile and schedule, and what is known of them without the planner.
class RandomCase {
 public:
  RandomCase(int seed, bool one_pass_only)
      : random_(static_cast<std::uint64_t>(seed)), profile_(testing::random_step_profile(random_)) {
    if (!one_pass_only) options_.schedule = testing::random_schedule(profile_, random_);
    options_.time_limit = std::chrono::minutes(10);
    options_.link_margin = 0;  // Compared are plans as the simulator sees them with this link.
    evaluator_.emplace(profile_, rules_, options_.schedule);
    most_ = evaluate(everywhere(ActionKind::kKeep), std::int64_t{1} << 50).peak;
    least_ = most_;
    for (const Choice& choice : simple()) least_ = std::min(least_, evaluate(choice, 0).peak);
  }

  /// From 0, the smallest peak of simple plans, to 1, everything kept.
  void set_budget(double share) {
    const double range = static_cast<double>(most_.count() - least_.count());
    options_.budget = Bytes(least_.count() + static_cast<std::uint64_t>(share * range));
  }

  void set_random_budget() { set_budget(static_cast<double>(random_() % 1000) / 1000); }

  [[nodiscard]] const Profile& profile() const { return profile_; }
  [[nodiscard]] const PlannerOptions& options() const { return options_; }
  [[nodiscard]] Evaluator& evaluator() { return *evaluator_; }
  [[nodiscard]] std::int64_t budget() const {
    return static_cast<std::int64_t>(options_.budget.count());
  }

  [[nodiscard]] std::vector<Choice> simple() const {
    return {everywhere(ActionKind::kKeep), everywhere(ActionKind::kOffload),
            everywhere(ActionKind::kRecompute)};
  }

  [[nodiscard]] Choice everywhere(ActionKind kind) const {
    Choice choice;
    for (const ChunkSpace& space : evaluator_->spaces()) {
      choice.push_back(choose_everywhere(space, kind));
    }
    return choice;
  }

  [[nodiscard]] Choice random_choice() {
    Choice choice = everywhere(ActionKind::kKeep);
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const std::vector<BufferOptions>& options = evaluator_->spaces()[i].buffers;
      for (std::size_t id = 0; id < options.size(); ++id) {
        const std::uint64_t wanted = random_() % 4;
        if (wanted == 0 && options[id].offload) choice[i].buffers[id] = ActionKind::kOffload;
        if (wanted == 1 && options[id].recompute) choice[i].buffers[id] = ActionKind::kRecompute;
      }
      for (Request& request : choice[i].values) request = static_cast<Request>(random_() % 4);
    }
    return choice;
  }

  /// The simulation within `budget`.
  [[nodiscard]] Simulation evaluate(const Choice& choice, std::int64_t budget) {
    return evaluator_->evaluate(choice, budget).simulation;
  }

  /// The fastest of those that fit; empty if none does.
  [[nodiscard]] std::optional<std::int64_t> best_of(const std::vector<Choice>& choices) {
    std::optional<std::int64_t> best;
    for (const Choice& choice : choices) {
      const Evaluated evaluated = evaluator_->evaluate(choice, budget());
      if (!evaluated.fits()) continue;
      best = std::min(best.value_or(evaluated.simulation.step_ns), evaluated.simulation.step_ns);
    }
    return best;
  }

  [[nodiscard]] std::int64_t number_of_plans() const {
    std::int64_t plans = 1;
    for (const ChunkSpace& space : evaluator_->spaces()) {
      for (const BufferOptions& options : space.buffers) {
        plans = std::min<std::int64_t>(plans * options.count(), 1'000'000);
      }
    }
    return plans;
  }

  [[nodiscard]] std::vector<Choice> all_choices() const {
    std::vector<Choice> all = {everywhere(ActionKind::kKeep)};
    for (std::size_t i = 0; i < evaluator_->spaces().size(); ++i) {
      const std::vector<BufferOptions>& options = evaluator_->spaces()[i].buffers;
      for (std::size_t id = 0; id < options.size(); ++id) {
        std::vector<Choice> more;
        for (Choice choice : all) {
          if (options[id].offload) {
            choice[i].buffers[id] = ActionKind::kOffload;
            more.push_back(choice);
          }
          if (options[id].recompute) {
            choice[i].buffers[id] = ActionKind::kRecompute;
            more.push_back(choice);
          }
        }
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    return all;
  }

 private:
  std::mt19937_64 random_;
  Profile profile_;
  Rules rules_;
  PlannerOptions options_;
  std::optional<Evaluator> evaluator_;
  Bytes most_;
  Bytes least_;
};

TEST(PlannerProperties, PlansAreValidFitAndBeatSimpleRules) {
  int within_gap = 0;
  const int cases = testing::cases_of(2000, 100);
  for (int seed = 0; seed < cases; ++seed) {
    RandomCase random(seed, seed % 2 == 0);
    random.set_random_budget();
    const PlannedStep step = plan_for_budget(random.profile(), random.options());
    ASSERT_LE(step.peak, random.options().budget) << "seed " << seed;
    ASSERT_LE(step.bound_ns, step.step_ns) << "seed " << seed;
    testing::check_replays(step.plan, random.profile());
    const Simulation simulation = simulate(random.profile(), step.plan,
                                           {.schedule = random.options().schedule, .windows = {}});
    ASSERT_EQ(simulation.peak, step.peak) << "seed " << seed;
    ASSERT_EQ(simulation.step_ns, step.step_ns) << "seed " << seed;
    const std::optional<std::int64_t> simple = random.best_of(random.simple());
    if (simple) {
      ASSERT_LE(step.step_ns, *simple) << "seed " << seed;
    }
    within_gap += step.within_gap ? 1 : 0;
  }
  std::cout << within_gap << " of " << cases << " plans have a gap of at most 0.1 %\n";
}

TEST(PlannerProperties, NoPlanIsFasterThanTheBounds) {
  int fitted = 0;
  const int cases = testing::cases_of(300);
  for (int seed = 0; seed < cases; ++seed) {
    RandomCase random(seed, seed % 2 == 0);
    random.set_random_budget();
    const Rules none;
    Search search(random.profile(), none, random.options());
    const std::optional<std::int64_t> bound =
        search.bound_ns(random.budget(), random.profile().link);
    const Simulation base =
        random.evaluate(random.everywhere(ActionKind::kKeep), std::int64_t{1} << 50);
    const std::int64_t closed =
        closed_bound_ns(search.evaluator(), base, random.profile().link, random.budget());
    for (int i = 0; i < 40; ++i) {
      const Evaluated evaluated =
          random.evaluator().evaluate(random.random_choice(), random.budget());
      if (!evaluated.fits()) continue;
      ++fitted;
      ASSERT_TRUE(bound.has_value()) << "seed " << seed;
      ASSERT_LE(*bound, evaluated.simulation.step_ns) << "seed " << seed;
      ASSERT_LE(closed, evaluated.simulation.step_ns) << "seed " << seed;
    }
  }
  EXPECT_GT(fitted, cases);
}

TEST(PlannerProperties, NothingBeatsThePlanWhereAllPlansCanBeTried) {
  int cases = 0;
  for (int seed = 0; cases < testing::cases_of(100, 10); ++seed) {
    RandomCase random(seed, seed % 2 == 0);
    if (random.number_of_plans() > 800 || random.number_of_plans() < 9) continue;
    ++cases;
    random.set_random_budget();
    const std::optional<std::int64_t> best = random.best_of(random.all_choices());
    if (!best) continue;
    const PlannedStep step = plan_for_budget(random.profile(), random.options());
    ASSERT_LE(step.step_ns, *best) << "seed " << seed;
    ASSERT_LE(step.bound_ns, *best) << "seed " << seed;
  }
}

TEST(PlannerProperties, MoreMemoryIsNeverSlower) {
  for (int seed = 0; seed < testing::cases_of(60, 15); ++seed) {
    RandomCase random(seed, seed % 2 == 0);
    std::optional<PlannedStep> before;
    for (const double share : {0.0, 0.3, 0.6, 1.0}) {
      random.set_budget(share);
      const PlannedStep step = plan_for_budget(random.profile(), random.options());
      if (before) {
        const double gap = random.options().gap;
        ASSERT_LE(static_cast<double>(step.step_ns),
                  static_cast<double>(before->step_ns) * (1 + gap))
            << "seed " << seed;
        ASSERT_LE(step.bound_ns, before->bound_ns) << "seed " << seed;
      }
      before = step;
    }
  }
}

}  // namespace
}  // namespace spillway
