#include "plan/solve/planner_search.hpp"

#include <algorithm>
#include <utility>

#include "plan/solve/dive.hpp"
#include "plan/solve/timed.hpp"

namespace spillway {
namespace {

using std::chrono::milliseconds;

/// About how many slots a step has.
constexpr int kSlots = 400;
constexpr int kSlotsOfLayer = 8;
/// Up to this number of plans all of them are simulated.
constexpr std::int64_t kMostPlans = 7000;
/// The effort for small changes, as evaluations times moments.
constexpr std::int64_t kImproveWork = 1'000'000;
/// How often the MILP model is solved again because its plan exceeds the budget when simulated.
constexpr int kTightenings = 3;
/// Relative to the bound: below this gap another model is not worth its time.
constexpr double kWorthAnotherTry = 3e-3;

}  // namespace

Search::Search(const Profile& profile, const Rules& rules, const PlannerOptions& options)
    : profile_(profile),
      options_(options),
      evaluator_(profile, rules, options.schedule, options.shard),
      slots_(evaluator_.spaces(), evaluator_.schedule(), evaluator_.kept_bytes(),
             std::max(kSlots, kSlotsOfLayer * profile.layers)) {
  if (rules.limits.host) host_ = static_cast<std::int64_t>(rules.limits.host->count());
  for (int i = 0; i < slots_.count(); ++i) moments_ += slots_[i].last - slots_[i].first + 1;
}

milliseconds Search::elapsed() const {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start_);
}

milliseconds Search::time_left() const {
  if (unwanted()) return milliseconds(0);
  return std::max(milliseconds(0), options_.time_limit - elapsed());
}

void Search::say(const std::string& text) const {
  if (options_.progress) options_.progress(text);
}

std::optional<std::int64_t> Search::bound_ns(std::int64_t budget, const LinkSpeed& link) {
  const Timed timed(evaluator_.effort().solving);
  MilpModel milp_model(
      evaluator_.spaces(), slots_, evaluator_.schedule(), link,
      {.stance = Stance::kOptimistic, .budget = budget, .most_ns = std::nullopt, .host = host_});
  const Solution solution = solve_relaxed(milp_model.linear());
  if (solution.status == SolveStatus::kInfeasible) return std::nullopt;
  return milp_model.nanoseconds(solution.bound);
}

std::optional<std::int64_t> Search::bound_bytes(std::int64_t most_ns, const LinkSpeed& link) {
  const Timed timed(evaluator_.effort().solving);
  MilpModel milp_model(
      evaluator_.spaces(), slots_, evaluator_.schedule(), link,
      {.stance = Stance::kOptimistic, .budget = std::nullopt, .most_ns = most_ns, .host = host_});
  ++rounds_;
  const Solution solution = Relaxation(milp_model.linear()).solve();
  if (solution.status == SolveStatus::kInfeasible) return std::nullopt;
  return milp_model.bytes(solution.bound);
}

Candidate Search::look_at(Choice choice, std::int64_t budget) {
  Evaluated evaluated = evaluator_.evaluate(choice, budget);
  return {std::move(choice), std::move(evaluated)};
}

void Search::take_if_better(const Candidate& found, Candidate& best) {
  if (found.evaluated.better_than(best.evaluated)) best = found;
}

void Search::take_if_better(Choice choice, std::int64_t budget, Candidate& best) {
  take_if_better(look_at(std::move(choice), budget), best);
}

Choice Search::everywhere(ActionKind kind) const {
  Choice choice;
  for (const ChunkSpace& space : evaluator_.spaces()) {
    choice.push_back(choose_everywhere(space, kind));
  }
  return choice;
}

namespace {

/// A plan that fits and moves and repeats nothing: none is better.
bool is_best(const Candidate& found) {
  return found.evaluated.fits() && found.evaluated.simulation.bytes_out == Bytes(0) &&
         found.evaluated.simulation.replay_ns == 0;
}

}  // namespace

Candidate Search::simplest(std::int64_t budget) {
  Candidate best = look_at(everywhere(ActionKind::kKeep), budget);
  if (is_best(best)) return best;
  take_if_better(everywhere(ActionKind::kOffload), budget, best);
  take_if_better(everywhere(ActionKind::kRecompute), budget, best);
  return best;
}

Candidate Search::best(std::int64_t budget, std::int64_t bound, Candidate simplest,
                       const std::vector<Choice>& known) {
  Candidate best = std::move(simplest);
  if (is_best(best)) return best;
  for (const Choice& each : known) take_if_better(each, budget, best);
  if (can_try_all()) {
    say("trying every plan");
    try_all(budget, bound, best);
  } else {
    solve_variants(budget, bound, best);
  }
  if (!best.evaluated.fits() || can_try_all()) improve(best, budget);
  return best;
}

/// The MILP model is more optimistic about the link and the order of copies than the simulator: if
/// its plan is far from the bound, plans that rely less on them may be better. Small changes take
/// longer than solving the model, so the best plan gets them first.
void Search::solve_variants(std::int64_t budget, std::int64_t bound, Candidate& best) {
  std::vector<Candidate> solved;
  for (const double link : {1.0, 0.7, 0.0}) {
    if (is_good_enough(best, bound)) break;
    std::optional<Candidate> found = solve_and_tighten(budget, link);
    if (!found) continue;
    take_if_better(*found, best);
    solved.push_back(std::move(*found));
  }
  // Near the smallest budget no solution of a model that errs on the safe side fits.
  if (solved.empty() && !is_good_enough(best, bound)) {
    take_if_better(smallest().choice, budget, best);
    solved.push_back(best);
  }
  std::stable_sort(solved.begin(), solved.end(), [](const Candidate& a, const Candidate& b) {
    return a.evaluated.better_than(b.evaluated);
  });
  for (Candidate& each : solved) {
    if (&each != solved.data() && is_good_enough(best, bound)) return;
    say("improving the plan");
    improve(each, budget);
    take_if_better(each, best);
  }
}

bool Search::is_good_enough(const Candidate& found, std::int64_t bound) const {
  const auto most = static_cast<double>(bound) * (1 + std::max(options_.gap, kWorthAnotherTry));
  const bool good =
      found.evaluated.fits() && static_cast<double>(found.evaluated.simulation.step_ns) <= most;
  return good || time_left() <= milliseconds(0);
}

const Candidate& Search::smallest() {
  if (smallest_) return *smallest_;
  say("looking for the smallest budget");
  Candidate best = simplest(0);
  if (can_try_all()) {
    try_all(0, 0, best);
  } else {
    Basis basis;
    const std::optional<Choice> solved = solve_milp({.stance = Stance::kCautious,
                                                     .budget = std::nullopt,
                                                     .most_ns = std::nullopt,
                                                     .host = host_},
                                                    basis);
    if (solved) take_if_better(*solved, 0, best);
  }
  improve(best, 0);
  smallest_ = std::move(best);
  return *smallest_;
}

bool Search::can_try_all() const {
  std::int64_t plans = 1;
  for (const ChunkSpace& space : evaluator_.spaces()) {
    for (const BufferOptions& options : space.buffers) {
      plans *= options.count();
      if (plans > kMostPlans) return false;
    }
  }
  return true;
}

void Search::try_all(std::int64_t budget, std::int64_t bound, Candidate& best) {
  struct Digit {
    std::size_t chunk;
    std::size_t buffer;
    std::vector<ActionKind> kinds;
    std::size_t now;
  };
  std::vector<Digit> digits;
  Choice choice = everywhere(ActionKind::kKeep);
  for (std::size_t chunk = 0; chunk < evaluator_.spaces().size(); ++chunk) {
    const std::vector<BufferOptions>& buffers = evaluator_.spaces()[chunk].buffers;
    for (std::size_t id = 0; id < buffers.size(); ++id) {
      if (buffers[id].count() < 2) continue;
      Digit digit{chunk, id, {}, 0};
      if (buffers[id].keep) digit.kinds.push_back(ActionKind::kKeep);
      if (buffers[id].offload) digit.kinds.push_back(ActionKind::kOffload);
      if (buffers[id].recompute) digit.kinds.push_back(ActionKind::kRecompute);
      choice[chunk].buffers[id] = digit.kinds.front();
      digits.push_back(std::move(digit));
    }
  }
  while (!best.evaluated.fits() || best.evaluated.simulation.step_ns > bound) {
    if (unwanted()) return;
    take_if_better(choice, budget, best);
    std::size_t i = 0;
    for (; i < digits.size(); ++i) {
      Digit& digit = digits[i];
      digit.now = (digit.now + 1) % digit.kinds.size();
      choice[digit.chunk].buffers[digit.buffer] = digit.kinds[digit.now];
      if (digit.now != 0) break;
    }
    if (i == digits.size()) return;
  }
}

std::optional<Candidate> Search::solve_and_tighten(std::int64_t budget, double link) {
  MilpOptions options{
      .stance = Stance::kCautious,
      .budget = budget,
      .most_ns = std::nullopt,
      .host = link > 0 ? host_ : 0,
      .link = link > 0 ? link : 1,
      .reserve = std::vector<std::int64_t>(static_cast<std::size_t>(slots_.count()))};
  Basis basis = basis_;
  std::optional<Candidate> best;
  for (int round = 0; round < kTightenings && (round == 0 || time_left() > milliseconds(0));
       ++round) {
    say(round == 0 ? "solving the MILP model" : "solving the MILP model again, with less memory");
    std::optional<Choice> choice = solve_milp(options, basis);
    if (!choice) break;
    Candidate found = look_at(std::move(*choice), budget);
    const bool fits = found.evaluated.fits();
    if (!fits) {
      const std::vector<std::int64_t> excess =
          evaluator_.excess_by_slot(found.evaluated.plan, slots_, budget);
      for (std::size_t i = 0; i < excess.size(); ++i) {
        if (excess[i] > 0) options.reserve[i] = 2 * options.reserve[i] + excess[i];
      }
    }
    if (!best || found.evaluated.better_than(best->evaluated)) best = std::move(found);
    if (fits) break;
  }
  return best;
}

Solution Search::solve_relaxed(const LinearModel& linear) {
  ++rounds_;
  Relaxation relaxation(linear, basis_);
  Solution solution = relaxation.solve();
  if (!solution.columns.empty()) basis_ = relaxation.basis();
  return solution;
}

std::optional<Choice> Search::solve_milp(const MilpOptions& options, Basis& basis) {
  const Timed timed(evaluator_.effort().solving);
  MilpModel milp_model(evaluator_.spaces(), slots_, evaluator_.schedule(), profile_.link, options);
  const LinearModel& linear = milp_model.linear();
  Relaxation relaxation(linear, basis);
  ++rounds_;
  const Solution relaxed = relaxation.solve();
  if (relaxed.columns.empty()) return std::nullopt;
  basis = relaxation.basis();
  const std::vector<double> integral = dive(linear, relaxation, relaxed);
  return milp_model.choice(integral.empty() ? relaxed.columns : integral);
}

void Search::improve(Candidate& found, std::int64_t budget) {
  int left = static_cast<int>(std::clamp<std::int64_t>(kImproveWork / moments_, 60, 3000));
  const std::vector<ChunkSpace>& spaces = evaluator_.spaces();
  if (!found.evaluated.fits()) {
    int half = left / 2;
    left -= half;
    while (!found.evaluated.fits() && half > 0 && try_layers(budget, half, found)) {
    }
    left += half;
  }
  bool better = true;
  while (better && left > 0) {
    const bool fits = found.evaluated.fits();
    better = fits ? try_moves(moves_for_time(spaces, found.choice, found.evaluated), false, budget,
                              left, found)
                  : try_moves(moves_against_peak(spaces, found.choice, found.evaluated), true,
                              budget, left, found);
  }
}

bool Search::try_choice(Choice choice, std::int64_t budget, int& left, Candidate& found) {
  if (choice == found.choice) return false;
  --left;
  Candidate next = look_at(std::move(choice), budget);
  if (!next.evaluated.better_than(found.evaluated)) return false;
  found = std::move(next);
  return true;
}

bool Search::try_layers(std::int64_t budget, int& left, Candidate& found) {
  bool better = false;
  for (const std::vector<Move>& moves : moves_of_all_layers(evaluator_.spaces())) {
    if (left <= 0 || unwanted()) return better;
    Choice choice = found.choice;
    for (const Move& move : moves) make(move, choice);
    if (!try_choice(std::move(choice), budget, left, found)) continue;
    better = true;
    if (found.evaluated.fits()) return true;
  }
  return better;
}

bool Search::try_moves(const std::vector<Move>& moves, bool first_only, std::int64_t budget,
                       int& left, Candidate& found) {
  bool better = false;
  for (const Move& move : moves) {
    if (left <= 0 || unwanted()) return better;
    Choice choice = found.choice;
    make(move, choice);
    if (!try_choice(std::move(choice), budget, left, found)) continue;
    better = true;
    if (first_only) return true;
  }
  return better;
}

}  // namespace spillway
