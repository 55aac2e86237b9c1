// The simulator's prediction of a step's allocations compared with the measured ones, to the byte.
#include <functional>
#include <random>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "plan/simulate/simulator.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/torch/host_memory.hpp"
#include "torch/control/session_internals.hpp"
#include "torch/support/equal_parts.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::offload_everything;
using testing::TinyModel;

/// A model and what a step does with it.
class Training {
 public:
  template <typename Model>
  Training(Model& model, std::function<void(Step&)> run)
      : register_with([&model](Session& session) { session.register_model(model); }),
        parameters_(model.parameters()),
        run_(std::move(run)) {
    at::set_num_threads(1);
  }

  /// The peak of a step beyond what was allocated before it.
  [[nodiscard]] std::int64_t step(Session& session) const {
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
    at::manual_seed(3);
    const auto before = static_cast<std::int64_t>(host_memory().count());
    {
      Step step = session.step();
      run_(step);
    }
    return static_cast<std::int64_t>(session.report().device_peak.count()) - before;
  }

  std::function<void(Session&)> register_with;

 private:
  std::vector<at::Tensor> parameters_;
  std::function<void(Step&)> run_;
};

/// Rules that keep, offload and recompute at random, by producers and layers; `shards`: and shard.
std::string random_rules(std::mt19937_64& random, bool shards) {
  static const std::vector<std::string> kProducers = {
      "aten::mm",  "aten::mul", "aten::silu",     "aten::bmm", "aten::native_dropout",
      "aten::div", "aten::add", "aten::_to_copy", "aten::pow", "aten::native_layer_norm"};
  static const std::vector<std::string> kActions = {"keep", "offload", "recompute"};
  const auto action = [&](std::size_t kinds) {
    const std::size_t kind = random() % kinds;
    const bool in_parts = shards && kind < 2 && random() % 2 == 0;
    return "action = \"" + kActions[kind] + "\"\n" + (in_parts ? "shard = true\n" : "");
  };
  std::string rules;
  if (random() % 3 == 0) rules += "[[rule]]\ngroup_inputs = 1\n" + action(2);
  for (int i = 0; i < 4; ++i) {
    rules += "[[rule]]\n";
    if (random() % 2 == 0) rules += "layers = \"" + std::to_string(random() % 3) + "\"\n";
    rules += "producer = \"" + kProducers[random() % kProducers.size()] + "\"\n" + action(3);
  }
  return rules + "[[rule]]\n" + action(3);
}

/// A line for each command.
std::string text_of(const CommandLog& log) {
  std::string text;
  for (const LoggedCommand& each : log) {
    text += std::string(to_string(each.command)) + " " + std::to_string(each.pass) + "." +
            std::to_string(each.item) + "\n";
  }
  return text;
}

/// How far a measurement may be from the prediction.
struct Slack {
  std::int64_t more = 0;  ///< Bytes.
  double share = 0;       ///< Of the peak, either way.
};

/// Executes random plans with windows and with lists for several budgets, and compares.
class Comparison {
 public:
  /// `ranks`: over so many, which do the same, buffers are sharded.
  explicit Comparison(const Training& training, PassSchedule schedule = {}, int ranks = 1)
      : training_(training) {
    Session session(offload_everything());
    training.register_with(session);
    (void)training.step(session);
    profile_ = *session.profile();
    const SessionOptions defaults = offload_everything();
    options_.schedule = std::move(schedule);
    options_.shard.ranks = ranks;
    options_.windows.offload_window = defaults.offload_window;
    options_.windows.prefetch_window = defaults.prefetch_window;
  }

  void run(int plans, Slack slack = {}) {
    std::mt19937_64 random(1);
    for (int i = 0; i < plans; ++i) {
      const std::string rules = random_rules(random, options_.shard.ranks > 1);
      Plan plan = make_plan(profile_, parse_rules(rules, "r.toml"));
      const std::uint64_t unlimited = predicted(plan).repeated_calls;
      if (i % 2 == 1) plan.limits.recompute_cache = Bytes(random() % 20'000);
      cache_matters_ += predicted(plan).repeated_calls > unlimited ? 1 : 0;
      compare(plan, rules, slack);
      Plan listed = plan;
      set_windows(profile_, listed, options_.schedule, options_.shard, options_.windows);
      compare(listed, rules + " with lists of windows", slack);
      const std::uint64_t least = predicted(within(plan, 0_B)).peak.count();
      const std::uint64_t most = predicted(within(plan, 1_GiB)).peak.count();
      for (const std::uint64_t percent : {0U, 20U, 60U}) {
        const Bytes budget(least + (most - least) * percent / 100);
        Plan limited = plan;
        const Simulator simulator(profile_, options_.schedule, options_.shard);
        ByteTargets targets = simulator.set_residency(budget, limited);
        EXPECT_TRUE(!options_.schedule.empty() || predicted(limited).peak <= budget) << rules;
        compare(limited, rules, slack);
        targets.pending_release = static_cast<std::int64_t>(random() % 64'000);
        targets.prefetch = static_cast<std::int64_t>(random() % 64'000);
        (void)simulator.set_residency(targets, limited);
        compare(limited, rules + " with a small limit on pending releases", slack);
      }
    }
    EXPECT_GT(moved_, 0);
    EXPECT_GT(repeated_, 0);
    EXPECT_GT(commands_, 0);
    EXPECT_EQ(gathered_ > 0, options_.shard.ranks > 1);
  }

  /// How often a small limit made replays repeat more.
  [[nodiscard]] int cache_mattered() const { return cache_matters_; }

 private:
  [[nodiscard]] Plan within(Plan plan, Bytes budget) const {
    set_residency(profile_, budget, plan, options_.schedule, options_.shard);
    return plan;
  }
  [[nodiscard]] Simulation predicted(const Plan& plan) const {
    return simulate(profile_, plan, options_);
  }

  void compare(const Plan& plan, const std::string& rules, Slack slack) {
    SessionOptions options = offload_everything();
    options.rules = {};
    options.plan = plan;
    Session session(std::move(options));
    training_.register_with(session);
    if (options_.shard.ranks > 1) {
      session.set_shard_group(std::make_shared<testing::EqualParts>(options_.shard.ranks));
    }
    std::int64_t measured = 0;
    CommandLog commands;
    for (int i = 0; i < 2; ++i) {  // The first step verifies.
      if (i == 1) SessionInternals::log_commands(session, &commands);
      measured = training_.step(session);
    }
    SessionInternals::log_commands(session, nullptr);
    compare_commands(commands, plan, rules);
    const Simulation simulation = predicted(plan);
    const SessionReport report = session.report();
    const std::int64_t more = measured - static_cast<std::int64_t>(simulation.peak.count());
    const auto either = static_cast<std::int64_t>(slack.share * static_cast<double>(measured));
    EXPECT_GE(more, -either) << rules << report;
    EXPECT_LE(more, slack.more + either) << rules << report;
    EXPECT_EQ(simulation.bytes_out, report.bytes_out) << rules;
    EXPECT_EQ(simulation.bytes_back, report.bytes_back) << rules;
    EXPECT_EQ(simulation.repeated_calls, report.repeated_calls) << rules;
    EXPECT_TRUE(report.fallbacks.empty()) << rules << report;
    if (report.shard) {
      EXPECT_EQ(simulation.bytes_gathered, report.shard->bytes) << rules;
      gathered_ += report.shard->gathers > 0 ? 1 : 0;
    }
    moved_ += report.bytes_back > 0_B ? 1 : 0;
    repeated_ += report.repeated_calls > 0 ? 1 : 0;
  }

  /// A session and the simulated step run one engine: on the same events it gives both the same
  /// commands, in the same order.
  void compare_commands(const CommandLog& commands, const Plan& plan, const std::string& rules) {
    const CommandLog expected =
        Simulator(profile_, options_.schedule, options_.shard).commands(plan, options_.windows);
    EXPECT_EQ(text_of(commands), text_of(expected)) << rules;
    commands_ += commands.size();
  }

  const Training& training_;
  Profile profile_;
  SimulateOptions options_;
  int moved_ = 0;
  int repeated_ = 0;
  int gathered_ = 0;
  int cache_matters_ = 0;
  std::size_t commands_ = 0;
};

class LlamaPrediction : public ::testing::TestWithParam<int> {};

TEST_P(LlamaPrediction, IsThePeakToTheByte) {
  const int ranks = GetParam();
  Llama model({.layers = 3,
               .hidden = 32,
               .heads = 4,
               .kv_heads = 2,
               .ffn = 64,
               .tokens = 128,
               .vocabulary = 50,
               .dtype = at::kFloat});
  const at::Tensor tokens = (at::arange(128, at::kLong) * 3 % 50).view({1, 128});
  const at::Tensor targets = (tokens + 1) % 50;
  const Training training(model, [&](Step&) { model.loss(tokens, targets).backward(); });
  Comparison(training, {}, ranks).run(15);
}

INSTANTIATE_TEST_SUITE_P(OnRanks, LlamaPrediction, ::testing::Values(1, 2, 3));

/// Values that autograd does not save, each read by two operators whose results it does.
struct SharedIntermediates {
  std::vector<at::Tensor> weights = {at::rand({64, 64}).set_requires_grad(true)};

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return weights; }
  [[nodiscard]] static std::vector<at::Tensor> buffers() { return {}; }
  [[nodiscard]] at::Tensor loss() const {
    at::Tensor x = weights[0];
    for (int i = 0; i < 4; ++i) {
      const at::Tensor shared = x.mul(0.5);
      x = shared.add(1).sin() + shared.add(3).cos();
    }
    return x.sum();
  }
};

TEST(Prediction, RepeatsWhatTheSessionRepeatsUnderALimitOnCachedResults) {
  SharedIntermediates model;
  const Training training(model, [&](Step&) { model.loss().backward(); });
  Comparison comparison(training);
  comparison.run(15);
  EXPECT_GT(comparison.cache_mattered(), 0);
}

TEST(Prediction, KnowsTheLimitOnCachedResultsOfTheSessionsOptions) {
  SharedIntermediates model;
  const Training training(model, [&](Step&) { model.loss().backward(); });
  std::vector<std::uint64_t> repeated;
  for (const std::optional<Bytes> cache : {std::optional<Bytes>(), std::optional(0_B)}) {
    SessionOptions options = testing::recompute_everything();
    options.recompute_cache = cache;
    Session session(std::move(options));
    training.register_with(session);
    for (int i = 0; i < 3; ++i) (void)training.step(session);
    EXPECT_EQ(session.plan()->limits.recompute_cache, cache);
    const Simulation simulation = simulate(*session.profile(), *session.plan());
    EXPECT_EQ(simulation.repeated_calls, session.report().repeated_calls);
    repeated.push_back(simulation.repeated_calls);
  }
  EXPECT_GT(repeated[1], repeated[0]);
}

/// A session records the state of the generator before a random operator. On the CPU that is a
/// tensor.
TEST(Prediction, MissesOnlyTheGeneratorStateWithDropout) {
  TinyModel model({.hidden = 32, .dropout = 0.1});
  const at::Tensor tokens = model.tokens(2, 64, 1);
  const Training training(model, [&](Step&) { model.loss(tokens).backward(); });
  const auto state = static_cast<std::int64_t>(
      at::globalContext().defaultGenerator(at::kCPU).get_state().storage().nbytes());
  Comparison(training).run(15, {.more = state});
}

/// What a second pass adds to existing gradients was not profiled: it is derived from the first
/// pass.
TEST(Prediction, IsNearThePeakOfSeveralPasses) {
  TinyModel model({.hidden = 32, .dropout = 0});
  PassSchedule in_turn;
  PassSchedule offload_window;
  for (int i = 0; i < 3; ++i) {
    in_turn.push_back({0, i, false});
    in_turn.push_back({0, i, true});
    offload_window.push_back({0, i, false});
  }
  for (int i = 0; i < 3; ++i) offload_window.push_back({0, i, true});
  const Training accumulating(model, [&](Step&) { (void)testing::accumulated_step(model, 1, 3); });
  Comparison(accumulating, in_turn).run(8, {.share = 0.04});
  const Training overlapping(model,
                             [&](Step& step) { (void)testing::gpipe_step(model, &step, 1, 3); });
  Comparison(overlapping, offload_window).run(8, {.share = 0.04});
  Comparison(accumulating, in_turn, 2).run(4, {.share = 0.04});
  Comparison(overlapping, offload_window, 2).run(4, {.share = 0.04});
}

}  // namespace
}  // namespace spillway
