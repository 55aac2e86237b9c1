/// The search for the best choice under a budget: relaxed MILP model, MILP model, small changes.
/// Every result is simulated.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/solve/milp_model.hpp"
#include "plan/solve/planner_evaluate.hpp"
#include "plan/solve/planner_moves.hpp"
#include "spillway/plan/planner.hpp"

namespace spillway {

/// A choice and what the simulator says of it.
struct Candidate {
  Choice choice;
  Evaluated evaluated;
};

class Search {
 public:
  /// Keeps references to the profile, the options and the rules, which are translated.
  Search(const Profile& profile, const Rules& rules, const PlannerOptions& options);

  [[nodiscard]] Evaluator& evaluator() { return evaluator_; }
  [[nodiscard]] const Evaluator& evaluator() const { return evaluator_; }

  /// No step that stays within `budget` is faster over such a link; empty: none stays within it.
  [[nodiscard]] std::optional<std::int64_t> bound_ns(std::int64_t budget, const LinkSpeed& link);
  /// No step that takes at most `most_ns` needs less memory; empty: none is so fast.
  [[nodiscard]] std::optional<std::int64_t> bound_bytes(std::int64_t most_ns,
                                                        const LinkSpeed& link);
  /// The best of three: everything is kept, offloaded or recomputed.
  [[nodiscard]] Candidate simplest(std::int64_t budget);
  /// The best that was found; it may not fit. Not worse than `simplest` and the `known` ones.
  /// `bound`: that of bound_ns() for the profile's link, to know when to stop.
  [[nodiscard]] Candidate best(std::int64_t budget, std::int64_t bound, Candidate simplest,
                               const std::vector<Choice>& known = {});
  /// The best choice by memory, whatever its time.
  [[nodiscard]] const Candidate& smallest();

  /// How often MILP models were solved.
  [[nodiscard]] int rounds() const { return rounds_; }
  [[nodiscard]] std::chrono::milliseconds elapsed() const;
  /// The time limit counts from here.
  void start_clock() { start_ = std::chrono::steady_clock::now(); }

 private:
  [[nodiscard]] std::chrono::milliseconds time_left() const;
  [[nodiscard]] bool unwanted() const { return options_.unwanted && options_.unwanted(); }
  void say(const std::string& text) const;
  [[nodiscard]] Candidate look_at(Choice choice, std::int64_t budget);
  static void take_if_better(const Candidate& found, Candidate& best);
  void take_if_better(Choice choice, std::int64_t budget, Candidate& best);
  [[nodiscard]] Choice everywhere(ActionKind kind) const;
  [[nodiscard]] bool can_try_all() const;
  void try_all(std::int64_t budget, std::int64_t bound, Candidate& best);
  void solve_variants(std::int64_t budget, std::int64_t bound, Candidate& best);
  [[nodiscard]] bool is_good_enough(const Candidate& found, std::int64_t bound) const;
  [[nodiscard]] std::optional<Candidate> solve_and_tighten(std::int64_t budget, double link);
  [[nodiscard]] Solution solve_relaxed(const LinearModel& linear);
  [[nodiscard]] std::optional<Choice> solve_milp(const MilpOptions& options, Basis& basis);
  void improve(Candidate& found, std::int64_t budget);
  /// Takes `choice` if it is better than `found`, and says so. Costs one of `left`, unless `found`
  /// has the same choice.
  bool try_choice(Choice choice, std::int64_t budget, int& left, Candidate& found);
  bool try_layers(std::int64_t budget, int& left, Candidate& found);
  bool try_moves(const std::vector<Move>& moves, bool first_only, std::int64_t budget, int& left,
                 Candidate& found);

  const Profile& profile_;
  const PlannerOptions& options_;
  std::optional<std::int64_t> host_;
  Evaluator evaluator_;
  Slots slots_;
  std::int64_t moments_ = 0;  // Of all passes: what an evaluation takes.
  Basis basis_;               // Of the last bound within a budget: other models are like it.
  std::optional<Candidate> smallest_;
  int rounds_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace spillway
