/// Compares a random program with and without a session, and simplifies programs that differ.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "machine.hpp"
#include "program.hpp"
#include "torch/support/reusing_allocator.hpp"

namespace spillway::testing {

enum class Policy { kKeep, kOffload, kRecompute, kRecomputeOrOffload, kMixed, kBudget };
enum class Window { kZero, kSmall, kLarge, kFitted };

/// How a session treats a program.
struct Variant {
  Policy policy = Policy::kKeep;
  Window window = Window::kZero;
  double share = 0;  ///< Of the budget.
  Reuse reuse = Reuse::kLast;

  [[nodiscard]] std::string to_string() const;
};

/// With every window, or else with one for each seed. A budget, which takes the planner's time, has
/// one share and window for each seed, and not `all` is a quarter of the seeds. How memory is
/// reused follows from the seed and the window, or is what SPILLWAY_TEST_REUSE says.
/// Errors: InvalidArgument for a word that is not known.
[[nodiscard]] std::vector<Variant> variants_of(Policy policy, std::uint64_t seed, bool all);

/// What the sessions of a test did.
struct Totals {
  int models = 0;
  int unrepeatable = 0;  ///< Models that is_repeatable() left out.
  int sessions = 0;
  int infeasible = 0;
  std::uint64_t steps = 0;
  std::uint64_t offloaded_bytes = 0;
  std::uint64_t repeated_calls = 0;
  std::uint64_t regions = 0;  ///< Of passes, in steps without a plan.
  std::map<std::string, std::uint64_t> fallbacks;

  void add(const SessionReport& report);
  void add(const Totals& other);
};

std::ostream& operator<<(std::ostream& out, const Totals& totals);

/// What differs first; empty: nothing.
[[nodiscard]] std::string first_difference(const std::vector<StepResult>& without,
                                           const std::vector<StepResult>& with);

/// Whether another run without a session has the same results: not all operators of CUDA are
/// deterministic.
[[nodiscard]] bool is_repeatable(const RandomProgram& program,
                                 const std::vector<StepResult>& results);

/// Why a run without a session is no baseline; empty: it is one.
[[nodiscard]] std::string problem_of_baseline(const std::vector<StepResult>& results);

/// Runs the program with a session; what is wrong about it, or an empty text. Another thread may
/// run another program meanwhile.
[[nodiscard]] std::string problem_of_session(const RandomProgram& program, const Variant& variant,
                                             const Features& features,
                                             const std::vector<StepResult>& expected,
                                             Totals* totals);

/// The same, and what the session and the program leave allocated. For one thread at a time.
[[nodiscard]] std::string problem_of(const RandomProgram& program, const Variant& variant,
                                     const Features& features,
                                     const std::vector<StepResult>& expected, Totals* totals);

/// The same without a baseline yet.
[[nodiscard]] std::string problem_of(const RandomProgram& program, const Variant& variant,
                                     const Features& features);

/// The answer of `work`, which runs in a process of its own; a crash is an answer, too.
/// Precondition: no other thread runs.
[[nodiscard]] std::string in_child(const std::function<std::string()>& work);

/// The simplest program that is found, by one edit at a time, for which `fails` is still true.
[[nodiscard]] RandomProgram simplified(RandomProgram program,
                                       const std::function<bool(const RandomProgram&)>& fails,
                                       int tries = 400);

/// A signal that ends the process (a crash) prints this first.
void announce(const std::string& text);

}  // namespace spillway::testing
