// Random programs under every policy and window: each step has the bits of the run without a
// session.
//
// Repeating a case, and choosing what programs may do:
//   SPILLWAY_TEST_SEED=17 build/release/bin/tests/stress_test --gtest_filter='*Offload'
//   SPILLWAY_TEST_SEED=0-199        seeds from 0 to 199
//   SPILLWAY_TEST_WITHOUT, SPILLWAY_TEST_ONLY    see features.hpp
//   SPILLWAY_TEST_REUSE=never       how the CPU's memory is reused (never, last, randomly)
//   SPILLWAY_TEST_SIMPLIFY=0        failing programs are printed as they are
//   SPILLWAY_TEST_CHILD=1           each case in a process of its own: a crash is simplified, too
//   SPILLWAY_TEST_DEVICE=cuda       on the GPU; models that differ there without a session, too,
//                                   are left out
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check.hpp"
#include "device.hpp"
#include "operators.hpp"
#include "spillway/torch/host_memory.hpp"
#include "support/random_cases.hpp"
#include "torch/support/reusing_allocator.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using testing::Deterministic;
using testing::Feature;
using testing::Features;
using testing::Policy;
using testing::RandomProgram;
using testing::StepResult;
using testing::Totals;
using testing::Variant;

constexpr int kModels = 1000;
constexpr int kShare = 125;  // One of so many is tested with every commit.
/// Failing programs that are simplified, and then only counted.
constexpr int kSimplified = 4;

std::vector<std::uint64_t> seeds() {
  std::uint64_t first = 0;
  auto last = static_cast<std::uint64_t>(testing::cases_of(kModels, kShare)) - 1;
  if (const char* const text = std::getenv("SPILLWAY_TEST_SEED"); text != nullptr) {
    char* rest = nullptr;
    first = std::strtoull(text, &rest, 10);
    last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first;
  }
  std::vector<std::uint64_t> all;
  for (std::uint64_t seed = first; seed <= last; ++seed) all.push_back(seed);
  return all;
}

/// With all windows: in `make test-long`, and where seeds are given.
bool is_thorough() {
  return std::getenv("SPILLWAY_TEST_SEED") != nullptr || testing::cases_of(2, 2) == 2;
}

bool is_set(const char* variable, bool otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? *text != '0' : otherwise;
}

/// CUDA does not work in a child.
bool in_children() { return is_set("SPILLWAY_TEST_CHILD", false) && !testing::on_cuda(); }

/// How to run the case that is tested now alone.
std::string command(const RandomProgram& program) {
  return "SPILLWAY_TEST_SEED=" + std::to_string(program.seed) + " stress_test --gtest_filter=" +
         ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "." +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

std::string describe(const RandomProgram& program, const Variant& variant, const Features& features,
                     const std::string& problem) {
  const std::string text = variant.to_string() + ", seed " + std::to_string(program.seed) + ": " +
                           problem + "\nrun it alone: " + command(program) + "\n" +
                           program.to_string();
  if (!is_set("SPILLWAY_TEST_SIMPLIFY", true)) return text;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto problem_of = [&](const RandomProgram& each) -> std::string {
    const auto work = [&] { return testing::problem_of(each, variant, features); };
    if (in_children()) return testing::in_child(work);
    testing::announce("\ncrashed with\n" + each.to_string() + "while simplifying " + text);
    return work();
  };
  const RandomProgram less = testing::simplified(program, [&](const RandomProgram& each) {
    return std::chrono::steady_clock::now() < end && !problem_of(each).empty();
  });
  const std::string still = problem_of(less);
  return text + "simplified: " + (still.empty() ? "it does not fail each time" : still) + "\n" +
         less.to_string();
}

class StressWith : public ::testing::TestWithParam<Policy> {
 protected:
  void SetUp() override {
    if (testing::device_is_missing()) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

TEST_P(StressWith, EveryStepHasTheBitsOfTheBaseline) {
  const Deterministic deterministic;
  at::set_num_threads(1);
  testing::install_reusing_allocator();
  count_host_memory();
  const Features features = Features::from_environment();
  Totals totals;
  int failed = 0;
  for (const std::uint64_t seed : seeds()) {
    const RandomProgram program = testing::random_program(seed, features);
    const std::string listing = program.to_string();
    testing::announce("\ncrashed without a session\n" + listing);
    const std::vector<StepResult> expected = testing::run(program, nullptr);
    if (!testing::is_repeatable(program, expected)) {
      ++totals.unrepeatable;
      continue;
    }
    const std::string invalid = testing::problem_of_baseline(expected);
    ASSERT_EQ(invalid, "") << listing;
    ++totals.models;
    for (const Variant& variant : testing::variants_of(GetParam(), seed, is_thorough())) {
      testing::announce("\ncrashed with " + variant.to_string() +
                        "\nrun it alone: " + command(program) + "\n" + listing);
      const auto work = [&] {
        return testing::problem_of(program, variant, features, expected, &totals);
      };
      const std::string problem = in_children() ? testing::in_child(work) : work();
      if (problem.empty()) continue;
      if (failed++ < kSimplified) {
        ADD_FAILURE() << describe(program, variant, features, problem);
      } else {
        ADD_FAILURE() << variant.to_string() << ", seed " << seed << ": " << problem
                      << "\nrun it alone: " << command(program);
      }
    }
  }
  std::cout << totals;
  EXPECT_GE(totals.models, totals.unrepeatable) << "most models are not deterministic";
}

std::string name_of_case(const ::testing::TestParamInfo<Policy>& info) {
  static constexpr const char* kNames[] = {"Keep",  "Offload", "Recompute", "RecomputeOrOffload",
                                           "Mixed", "Budget"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Policies, StressWith,
                         ::testing::Values(Policy::kKeep, Policy::kOffload, Policy::kRecompute,
                                           Policy::kRecomputeOrOffload, Policy::kMixed,
                                           Policy::kBudget),
                         name_of_case);

TEST(Stress, TwoSessionsOnTwoThreadsHaveTheBitsOfTheBaseline) {
  if (testing::device_is_missing()) GTEST_SKIP() << "skipped: no CUDA device";
  const Deterministic deterministic;
  at::set_num_threads(1);
  testing::install_reusing_allocator();
  // The generator of the process cannot be shared by two programs.
  const Features features = Features::from_environment().without(Feature::kDropout);
  for (const std::uint64_t seed : seeds()) {
    std::vector<RandomProgram> programs;
    std::vector<std::vector<StepResult>> expected;
    std::vector<Variant> variants;
    bool repeatable = true;
    for (const std::uint64_t each : {2 * seed, 2 * seed + 1}) {
      programs.push_back(testing::random_program(each, features));
      expected.push_back(testing::run(programs.back(), nullptr));
      repeatable = repeatable && testing::is_repeatable(programs.back(), expected.back());
      const auto policy = static_cast<Policy>(each * 7 % 6);
      const std::vector<Variant> all = testing::variants_of(policy, each, true);
      variants.push_back(all[each / 6 % all.size()]);
    }
    if (!repeatable) continue;
    testing::announce("\ncrashed with two sessions, seed " + std::to_string(seed) + "\n" +
                      variants[0].to_string() + "\n" + programs[0].to_string() + "\n" +
                      variants[1].to_string() + "\n" + programs[1].to_string());
    std::vector<std::string> problems(2);
    testing::restart_reuse(variants[0].reuse, seed);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        at::set_num_threads(1);
        problems[i] =
            testing::problem_of_session(programs[i], variants[i], features, expected[i], nullptr);
      });
    }
    for (std::thread& each : threads) each.join();
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(problems[i], "") << variants[i].to_string()
                                 << "\nrun it alone: " << command(programs[i]) << "\n"
                                 << programs[i].to_string();
    }
  }
}

TEST(StressPrograms, AreTheSameForTheSameSeed) {
  const Features all = Features::all();
  EXPECT_EQ(testing::random_program(5, all).to_string(),
            testing::random_program(5, all).to_string());
  EXPECT_NE(testing::random_program(5, all).to_string(),
            testing::random_program(6, all).to_string());
}

TEST(StressPrograms, UseEveryFeatureAndEveryOperator) {
  const Features all = Features::all();
  std::set<std::size_t> used;
  Features found;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const RandomProgram program = testing::random_program(seed, all);
    for (int i = 0; i < static_cast<int>(Feature::kCount); ++i) {
      if (program.features().has(static_cast<Feature>(i)))
        found = found.with(static_cast<Feature>(i));
    }
    for (const auto& block : program.blocks) {
      for (const auto& each : block.main) used.insert(each.op);
    }
  }
  EXPECT_EQ(used.size(), testing::operators().size());
  // Those of sessions are not the program's.
  for (const Feature each :
       {Feature::kVerify, Feature::kFullHost, Feature::kRegions, Feature::kBackgroundPlan}) {
    found = found.with(each);
  }
  EXPECT_EQ(found.to_string(), all.to_string());
}

TEST(StressPrograms, HaveNoFeatureThatIsOff) {
  for (int i = 1; i < static_cast<int>(Feature::kCount); ++i) {
    const auto off = static_cast<Feature>(i);
    const Features features = Features::all().without(off);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      EXPECT_FALSE(testing::random_program(seed, features).features().has(off))
          << testing::name_of(off) << " (" << testing::meaning_of(off) << "), seed " << seed;
    }
  }
}

TEST(StressPrograms, DifferInAStepWhereAWeightDiffers) {
  if (testing::device_is_missing()) GTEST_SKIP() << "skipped: no CUDA device";
  at::set_num_threads(1);
  RandomProgram program = testing::random_program(3, Features::none().with(Feature::kCommon));
  const std::vector<StepResult> one = testing::run(program, nullptr);
  EXPECT_EQ(testing::first_difference(one, testing::run(program, nullptr)), "");
  std::vector<StepResult> other = testing::run(program, nullptr);
  other[2].values[1].tensor.view(-1)[3].add_(1e-6);
  EXPECT_THAT(testing::first_difference(one, other),
              ::testing::StartsWith("step 2: the gradient of embedding differs in 1 of "));
  other = one;
  other[4].error = "broken";
  EXPECT_EQ(testing::first_difference(one, other),
            "step 4: no error without a session, \"broken\" with it");
}

TEST(StressPrograms, AreSimplifiedToWhatFails) {
  const RandomProgram program = testing::random_program(12, Features::all());
  const auto wanted = program.blocks.back().main.back().op;
  const RandomProgram less = testing::simplified(program, [&](const RandomProgram& each) {
    for (const auto& block : each.blocks) {
      for (const auto& one : block.main) {
        if (one.op == wanted) return true;
      }
    }
    return false;
  });
  ASSERT_EQ(less.blocks.size(), 1U) << less.to_string();
  EXPECT_EQ(less.blocks[0].main.size(), 1U) << less.to_string();
  EXPECT_TRUE(less.blocks[0].other.empty()) << less.to_string();
  EXPECT_EQ(less.steps.size(), 1U) << less.to_string();
}

}  // namespace
}  // namespace spillway
