/// Question: what does Spillway cost on each rank of a pipeline, and by how much does it lower the
/// peak there?
///
/// How to read it: one process runs the schedule of one rank after the other, 1F1B of four stages
/// and the same with two chunks on each stage (interleaved), 16 micro-batches. It has no
/// neighbours: stand-ins on the same device copy a made-up tensor wherever the rank would receive
/// one, and what the rank would send is dropped. So there are no waits for other ranks, in which
/// copies could hide: a pipeline of several machines gives them more room than there is here.
///
/// Every row trains the same layers in turns without and with a session; its figure is the median
/// ratio of the two step times. "peak" is what the allocator had at most in a step, less what was
/// there before it (weights, gradients), "unaided" the same without Spillway: early ranks have more
/// micro-batches in flight, so they have more to gain. R is that peak's fall as a share of the fall
/// that the simulator sees if what leaves were gone at once and came back the moment it is wanted:
/// no windows give a lower peak. It is wanted of the rules, which let waits add the 2 % to a step
/// that are allowed here, so that what leaves is gone: what
/// may still be on its way out counts as not gone, which constant windows (--window) show. A plan
/// for a budget leaves buffers on the device as long as the budget allows. "bits differ" counts
/// gradients that differ in a bit from those without a session.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>

#include "common/budget_text.hpp"
#include "lone_stage.hpp"
#include "spillway/plan/simulate.hpp"
#include "support/training_program.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr const char* kQuestion =
    "What does Spillway cost on each rank of a pipeline, and by how much does it lower the peak?";

constexpr int kStages = 4;
constexpr double kMostRatio = 1.02;
constexpr double kLeastReduction = 99.5;  // Percent.
/// A session with rules records, proves its plan, and times a step.
constexpr int kWarmUp = 5;
/// One with a budget records, then proves a plan and times a step, at most four times;
constexpr int kMostSettling = 12;
/// after so many steps with the same plan it will not make another one.
constexpr int kSettled = 3;

struct Options {
  bool small = false;
  int repeats = 5;
  int micro_batches = 0;  // 0: those of the case.
  std::vector<int> chunks = {1, 2};
  std::vector<int> stages = {0, 1, 2, 3};
  std::string budget = "70%";
  std::string window;  // Empty: what the session finds.
  std::vector<std::string> plans = {"rules", "budget"};
  std::filesystem::path save;  // Empty: nothing is kept.
};

struct Case {
  LlamaShape shape;
  PipelineRank rank;
  std::string text;  ///< "PP=4", "PP=4 x 2 chunks".
  std::string id;    ///< "pp4.rank0"
};

struct Outcome {
  std::vector<double> base;  ///< In turns with
  std::vector<double> milliseconds;
  std::vector<double> ratios;
  Bytes unaided;
  Bytes peak;
  SessionReport report;
  /// By the simulator, with the plan's windows and if what leaves were gone at once.
  Bytes predicted;
  Bytes least;
  Bytes kept;
  int different = 0;
};

LlamaShape shape_of(bool small, at::Device device) {
  LlamaShape shape;
  if (small) {
    shape = {.layers = 8,
             .hidden = 64,
             .heads = 4,
             .kv_heads = 2,
             .ffn = 192,
             .tokens = 256,
             .vocabulary = 256};
    shape.dtype = at::kFloat;
  }
  shape.device = device;
  return shape;
}

std::vector<Case> cases_of(const Options& options, bool small, at::Device device) {
  std::vector<Case> cases;
  for (const int chunks : options.chunks) {
    for (const int stage : options.stages) {
      Case made;
      made.shape = shape_of(small, device);
      const int micro_batches = options.micro_batches > 0 ? options.micro_batches : 16;
      made.rank = {stage, kStages, chunks, micro_batches};
      made.text = "PP=4" + (chunks == 1 ? "" : " x " + std::to_string(chunks) + " chunks");
      made.id = std::string("pp4") + (chunks == 1 ? "" : "v" + std::to_string(chunks)) + ".rank" +
                std::to_string(stage);
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

SessionOptions options_for(at::Device device, bool small) {
  SessionOptions options;
  options.device = device;
  if (device.is_cuda()) options.prepare = 24_GiB;
  if (small) options.small = 4_KiB;
  return options;
}

SessionOptions by_rules(SessionOptions options, const std::string& window) {
  std::string text = "[[rule]]\nmodule = [\"core_attn\", \"attn_proj\"]\naction = \"offload\"\n";
  if (window.empty()) text += "[limits]\nslowdown = " + app::fixed(kMostRatio - 1, 2) + "\n";
  options.rules = parse_rules(text, "rules");
  if (!window.empty()) options.in_flight = options.ahead = parse_bytes(window);
  return options;
}

SessionOptions by_budget(SessionOptions options, const std::string& text) {
  const app::BudgetText budget = app::parse_budget(text);
  const auto* bytes = std::get_if<Bytes>(&budget);
  options.budget =
      bytes != nullptr ? Budget(*bytes) : Budget::share(std::get<app::Share>(budget).value);
  options.plan_in_background = false;  // So that it has settled after a known number of steps.
  return options;
}

/// Nothing where the session recorded no times.
void predict(const LoneStage& stage, const Session& session, Outcome& outcome) {
  const std::shared_ptr<const Profile> profile = session.profile();
  const std::shared_ptr<const Plan> plan = session.plan();
  if (profile == nullptr || plan == nullptr || !has_times(*profile)) return;
  SimulateOptions options;
  options.schedule = stage.schedule();
  outcome.predicted = simulate(*profile, *plan, options).peak;
  outcome.kept = simulate(*profile, make_plan(*profile, {}), options).peak;
  Plan bare = *plan;
  for (ChunkPlan& chunk : bare.chunks) {
    chunk.forward_allowance.clear();
    chunk.backward_allowance.clear();
  }
  bare.limits.in_flight = bare.limits.ahead = Bytes();
  outcome.least = simulate(*profile, bare, options).peak;
}

void settle(LoneStage& stage, Session& session) {
  std::uint64_t plans = 0;
  int same = 0;
  for (int i = 0; i < kMostSettling && (i < kWarmUp || same < kSettled); ++i) {
    (void)stage.step(&session);
    const SessionReport report = session.report();
    const std::uint64_t made = report.budget ? report.budget->plans : 1;
    same = made == plans && made > 0 ? same + 1 : 0;
    plans = made;
  }
}

void save(const Session& session, const std::filesystem::path& folder, const std::string& id) {
  std::filesystem::create_directories(folder);
  save_profile(*session.profile(), folder / (id + "-profile.json"));
  save_plan(*session.plan(), folder / (id + "-plan.json"));
}

Outcome measure(LoneStage& stage, SessionOptions given, const Options& options,
                const std::string& id) {
  Session session(std::move(given));
  session.register_model(stage.model());
  settle(stage, session);
  Outcome outcome;
  for (int i = 0; i < options.repeats; ++i) {
    const app::MeasuredStep base = stage.step(nullptr);
    const app::MeasuredStep step = stage.step(&session);
    outcome.base.push_back(base.milliseconds);
    outcome.milliseconds.push_back(step.milliseconds);
    outcome.ratios.push_back(step.milliseconds / base.milliseconds);
    outcome.unaided = std::max(outcome.unaided, base.peak);
    outcome.peak = std::max(outcome.peak, step.peak);
  }
  outcome.report = session.report();
  predict(stage, session, outcome);
  if (!options.save.empty()) save(session, options.save, id);
  outcome.different = stage.count_different(session);
  return outcome;
}

double in_gib(Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 30); }

bool lowers(const Outcome& outcome) { return outcome.unaided > outcome.least; }

/// In percent: of what the plan lowers the peak by if what leaves were gone at once.
double reduction_of(const Outcome& outcome) {
  const double less = in_gib(outcome.unaided) - in_gib(outcome.peak);
  return 100 * less / (in_gib(outcome.unaided) - in_gib(outcome.least));
}

double waits_of(const SessionReport& report) {
  const Nanoseconds all = report.waits.release + report.waits.reload + report.waits.in_place;
  return static_cast<double>(all.count()) / 1e6;
}

std::uint64_t fallbacks_of(const SessionReport& report) {
  std::uint64_t count = 0;
  for (const auto& [reason, times] : report.fallbacks) count += times;
  return count;
}

app::TextTable empty_table() {
  using Align = app::TextTable::Align;
  return app::TextTable({{"pipeline"},
                         {"rank", Align::kRight},
                         {"plan"},
                         {"step / base", Align::kRight},
                         {"min..max", Align::kRight},
                         {"R", Align::kRight},
                         {"unaided GiB", Align::kRight},
                         {"peak", Align::kRight},
                         {"out", Align::kRight},
                         {"recomputed", Align::kRight},
                         {"waits ms", Align::kRight},
                         {"bits equal"}});
}

void add_line(app::TextTable& table, const Case& made, const std::string& plan,
              const Outcome& outcome) {
  const Spread ratio = app::spread_of(outcome.ratios);
  const SessionReport& report = outcome.report;
  table.add({made.text, std::to_string(made.rank.stage), plan, app::fixed(ratio.median, 3),
             app::fixed(ratio.min, 3) + ".." + app::fixed(ratio.max, 3),
             lowers(outcome) ? app::fixed(reduction_of(outcome), 1) + " %" : "-",
             app::fixed(in_gib(outcome.unaided), 3), app::fixed(in_gib(outcome.peak), 3),
             app::fixed(in_gib(report.bytes_out), 3), app::fixed(in_gib(report.bytes_remade), 3),
             app::fixed(waits_of(report), 1), outcome.different == 0 ? "yes" : "no"});
}

void add_figures(Report& report, const std::string& id, const std::string& text,
                 const Outcome& outcome, bool judge, bool judge_reduction) {
  const SessionReport& found = outcome.report;
  const auto exact = [](const char* name, const char* unit, int decimals, double value) {
    return Value{name, unit, decimals, app::exactly(value)};
  };
  report.figures.push_back({id,
                            {text, "x", 3, app::spread_of(outcome.ratios)},
                            Wanted{Wanted::Kind::kAtMost, kMostRatio, judge},
                            {{"step", "ms", 1, app::spread_of(outcome.milliseconds)},
                             {"without", "ms", 1, app::spread_of(outcome.base)},
                             exact("bits differ", "", 0, outcome.different),
                             exact("out", "GiB", 3, in_gib(found.bytes_out)),
                             exact("recomputed", "GiB", 3, in_gib(found.bytes_remade)),
                             exact("late", "", 0, static_cast<double>(found.late_reloads)),
                             exact("waits", "ms", 1, waits_of(found)),
                             exact("fallbacks", "", 0, static_cast<double>(fallbacks_of(found))),
                             exact("demoted", "", 0, static_cast<double>(found.demoted.size()))}});
  std::optional<Wanted> reduction;
  if (judge_reduction) {
    reduction = Wanted{Wanted::Kind::kAtLeast, kLeastReduction, judge};
  }
  if (lowers(outcome)) {
    report.figures.push_back(
        {id + "_R",
         {"its R", "%", 1, app::exactly(reduction_of(outcome))},
         reduction,
         {exact("of saved buffers", "GiB", 3, in_gib(found.planned_reduction))}});
  }
  std::optional<Wanted> peak;
  if (found.budget) peak = Wanted{Wanted::Kind::kAtMost, in_gib(found.budget->budget), judge};
  report.figures.push_back({id + "_peak",
                            {"its peak", "GiB", 3, app::exactly(in_gib(outcome.peak))},
                            peak,
                            {exact("predicted", "GiB", 3, in_gib(outcome.predicted)),
                             exact("if gone at once", "GiB", 3, in_gib(outcome.least)),
                             exact("unaided", "GiB", 3, in_gib(outcome.unaided)),
                             exact("unaided, predicted", "GiB", 3, in_gib(outcome.kept))}});
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "A model for the CPU: seconds, not judged");
  app.add_option("--repeats", options.repeats, "Timed steps of each row")
      ->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.stages, "Only these ranks: 0,3")
      ->delimiter(',')
      ->check(CLI::Range(0, kStages - 1));
  app.add_option("--chunks", options.chunks, "Only so many chunks on each stage: 1,2")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--micro-batches", options.micro_batches, "Instead of 16")
      ->check(CLI::PositiveNumber);
  app.add_option("--plans", options.plans, "Only these plans: rules,budget")
      ->delimiter(',')
      ->check(CLI::IsMember({"rules", "budget"}));
  app.add_option("--save", options.save, "Keep every row's profile and plan in this folder")
      ->type_name("FOLDER");
  app.add_option("--budget", options.budget, "Of the budget's rows")->capture_default_str();
  app.add_option("--window", options.window,
                 "Constant windows for the rules' rows: in_flight and ahead, 64MiB");
}

void measure_all(const Options& options, Report& report) {
  const at::Device device = app::best_device();
  const bool judge = device.is_cuda() && !options.small;
  const std::vector<Case> cases = cases_of(options, !judge, device);
  const LlamaShape shape = shape_of(!judge, device);
  report.settings = {{"stages", kStages},
                     {"micro-batches", cases.front().rank.micro_batches},
                     {"layers", shape.layers},
                     {"hidden", shape.hidden},
                     {"tokens", shape.tokens},
                     {"budget", options.budget},
                     {"window", options.window.empty() ? "found" : options.window}};
  report.side_by_side = empty_table();
  for (const Case& each : cases) {
    LoneStage stage(each.shape, each.rank);
    const auto run = [&](const std::string& plan, const char* id, SessionOptions given) {
      if (std::find(options.plans.begin(), options.plans.end(), id) == options.plans.end()) return;
      const std::string text =
          each.text + ", rank " + std::to_string(each.rank.stage) + ", " + plan;
      std::cerr << "measuring: " << text << " ...\n";
      const Outcome outcome =
          measure(stage, std::move(given), options, each.id + "." + std::string(id));
      std::cerr << "  " << app::fixed(app::spread_of(outcome.ratios).median, 3) << "x, peak "
                << app::fixed(in_gib(outcome.peak), 3) << " of "
                << app::fixed(in_gib(outcome.unaided), 3) << " GiB, R "
                << app::fixed(reduction_of(outcome), 1) << " %\n";
      const bool rules = !outcome.report.budget;
      add_figures(report, "pipeline." + each.id + "." + id, text, outcome, judge, rules);
      add_line(*report.side_by_side, each, plan, outcome);
      report.save();
    };
    const SessionOptions given = options_for(device, !judge);
    run("core_attn, attn_proj offloaded", "rules", by_rules(given, options.window));
    run("budget " + options.budget, "budget", by_budget(given, options.budget));
  }
  report.notes.emplace_back(
      "One process, neighbours made up: no waits for other ranks, in which copies could hide.");
  add_training_notes(report, judge);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("pipeline", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
