/// Question: what does Spillway cost on each rank of a pipeline, and by how much does it lower the
/// peak there?
///
/// How to read it: one process runs the schedule of one rank after the other, 1F1B of four stages
/// and the same with two chunks on each stage (interleaved), 16 micro-batches. It has no
/// neighbours: messages to receive are emulated by copies on the same device, messages to send are
/// dropped. So there are no waits for other ranks that could hide copies; a pipeline over several
/// machines has more time for them.
///
/// Every row trains the same layers in turns without and with a session; its figure is the median
/// ratio of the two step times. "peak" is the allocator's maximum in a step, less what was
/// allocated before it (weights, gradients); "baseline" is the same without Spillway. Early ranks
/// have more pending micro-batches, so they have more to gain. "peak reduction ratio" (R) is the
/// measured reduction of the peak over the one that the simulator predicts if offloaded buffers
/// were released at once and reloaded just in time: no windows give a lower peak. Only the rows
/// with rules have a limit for it: there waits may add 2 % to a step, so that offloaded buffers are
/// released in time. Bytes of a pending release count as not released, which constant windows
/// (--window) show. A plan for a budget keeps buffers on the device as long as the budget allows.
/// "bits differ" counts gradients that differ in a bit from those without a session. "allocator
/// beyond the peak" is memory that the allocator reserved and no step used, after steps with the
/// session alone: fragments. On a full device the allocator returns fragments before it fails; the
/// row after it has the step time with the allocator limited so, unless such a step runs out of
/// memory.
///
/// --plans adds two sets of rows: experts in every second layer (on this rank alone) with their
/// inputs offloaded; and layers recomputed, with their inputs kept, offloaded, sharded, and both,
/// whose speeds are compared. The tensor-parallel ranks of sharded rows are emulated too
/// (emulated_shards.hpp), so that bits cannot be compared there; tests with ranks do that.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include <CLI/CLI.hpp>

#include "emulated_shards.hpp"
#include "outcome.hpp"
#include "plans.hpp"
#include "spillway/core/numbers.hpp"
#include "support/training_program.hpp"
#include "util/text/budget_text.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr const char* kQuestion =
    "What does Spillway cost on each rank of a pipeline, and by how much does it lower the peak?";

constexpr int kStages = 4;
constexpr double kMaxRatio = 1.02;
constexpr double kMinReduction = 99.5;  // Percent.

struct Options {
  bool small = false;
  int repeats = 5;
  int micro_batches = 0;  // 0: those of the case.
  std::vector<int> chunks = {1, 2};
  std::vector<int> stages = {0, 1, 2, 3};
  std::string budget = "70%";
  std::string window;  // Empty: windows of the session.
  double slowdown = kMaxRatio - 1;
  int tensor_ranks = 4;
  double tensor_link = 200;  // GB/s
  std::vector<std::string> plans = {"rules", "budget"};
  std::filesystem::path save;  // Empty: none.
};

struct Case {
  bool small = false;
  at::Device device = at::kCPU;
  PipelineRank rank;
  std::string text;  ///< "PP=4", "PP=4 x 2 chunks".
  std::string id;    ///< "pp4.rank0"
};

LlamaShape shape_of(bool small, at::Device device, bool experts = false) {
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
  if (experts) {
    shape.moe.experts = small ? 4 : 8;
    shape.moe.ffn = shape.ffn / 2;
  }
  return shape;
}

std::vector<Case> cases_of(const Options& options, bool small, at::Device device) {
  std::vector<Case> cases;
  for (const int chunks : options.chunks) {
    for (const int stage : options.stages) {
      Case made;
      made.small = small;
      made.device = device;
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

SessionOptions by_rules(SessionOptions options, const PipelinePlan& plan, const Options& chosen) {
  std::string text = plan.rules;
  if (chosen.window.empty()) {
    text += "[limits]\nslowdown = " + with_decimals(chosen.slowdown, 3) + "\n";
  } else {
    options.offload_window = options.prefetch_window = parse_bytes(chosen.window);
  }
  options.rules = parse_rules(text, "rules");
  return options;
}

SessionOptions by_budget(SessionOptions options, const std::string& text) {
  const app::BudgetText budget = app::parse_budget(text);
  const auto* bytes = std::get_if<Bytes>(&budget);
  options.budget =
      bytes != nullptr ? Budget(*bytes) : Budget::share(std::get<app::Share>(budget).value);
  options.plan_in_background = false;  // Settles after a known number of steps.
  return options;
}

bool lowers(const Outcome& outcome) { return outcome.baseline_peak > outcome.least; }

/// The peak reduction ratio (R), in percent.
double reduction_ratio(const Outcome& outcome) {
  const double reduction = in_gib(outcome.baseline_peak) - in_gib(outcome.peak);
  return 100 * reduction / (in_gib(outcome.baseline_peak) - in_gib(outcome.least));
}

double waits_of(const SessionReport& report) {
  const Nanoseconds all = report.waits.release + report.waits.reload + report.waits.in_place;
  return in_milliseconds(all);
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
                         {"reduction ratio (R)", Align::kRight},
                         {"baseline GiB", Align::kRight},
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
  table.add({made.text, std::to_string(made.rank.stage), plan, with_decimals(ratio.median, 3),
             with_decimals(ratio.min, 3) + ".." + with_decimals(ratio.max, 3),
             lowers(outcome) ? with_decimals(reduction_ratio(outcome), 1) + " %" : "-",
             with_decimals(in_gib(outcome.baseline_peak), 3),
             with_decimals(in_gib(outcome.peak), 3), with_decimals(in_gib(report.bytes_out), 3),
             with_decimals(in_gib(report.bytes_recomputed), 3), with_decimals(waits_of(report), 1),
             !outcome.different ? "-" : (*outcome.different == 0 ? "yes" : "no")});
}

void add_figures(Report& report, const std::string& id, const std::string& text,
                 const PipelinePlan& plan, const Outcome& outcome,
                 const std::optional<Wanted>& most_peak, bool judge) {
  const SessionReport& found = outcome.report;
  const auto exact = [](const char* name, const char* unit, int decimals, double value) {
    return Value{name, unit, decimals, app::exactly(value)};
  };
  std::optional<Wanted> ratio;
  if (plan.max_ratio > 0) ratio = Wanted{Wanted::Kind::kAtMost, plan.max_ratio, judge};
  report.figures.push_back({id,
                            {text, "x", 3, app::spread_of(outcome.ratios)},
                            ratio,
                            {{"step", "ms", 1, app::spread_of(outcome.milliseconds)},
                             {"without", "ms", 1, app::spread_of(outcome.base)},
                             exact("out", "GiB", 3, in_gib(found.bytes_out)),
                             exact("recomputed", "GiB", 3, in_gib(found.bytes_recomputed)),
                             exact("late", "", 0, static_cast<double>(found.late_reloads)),
                             exact("waits", "ms", 1, waits_of(found)),
                             exact("fallbacks", "", 0, static_cast<double>(fallbacks_of(found))),
                             exact("demoted", "", 0, static_cast<double>(found.demoted.size()))}});
  if (outcome.different) {
    report.figures.back().beside.push_back(exact("bits differ", "", 0, *outcome.different));
  }
  if (found.shard) {
    report.figures.back().beside.push_back(exact("sharded", "GiB", 3, in_gib(found.shard->bytes)));
  }
  std::optional<Wanted> reduction;
  if (plan.offloads) {
    reduction = Wanted{Wanted::Kind::kAtLeast, kMinReduction, judge};
  }
  if (lowers(outcome)) {
    report.figures.push_back(
        {id + "_R",
         {"its peak reduction ratio", "%", 1, app::exactly(reduction_ratio(outcome))},
         reduction,
         {exact("of saved buffers", "GiB", 3, in_gib(found.planned_reduction))}});
  }
  std::optional<Wanted> peak = most_peak;
  if (found.budget) peak = Wanted{Wanted::Kind::kAtMost, in_gib(found.budget->budget), judge};
  report.figures.push_back({id + "_peak",
                            {"its peak", "GiB", 3, app::exactly(in_gib(outcome.peak))},
                            peak,
                            {exact("predicted", "GiB", 3, in_gib(outcome.predicted)),
                             exact("if released at once", "GiB", 3, in_gib(outcome.least)),
                             exact("baseline", "GiB", 3, in_gib(outcome.baseline_peak)),
                             exact("baseline, predicted", "GiB", 3, in_gib(outcome.kept))}});
  if (outcome.unused) {
    report.figures.push_back({id + "_unused",
                              {"allocator beyond the peak", "%", 2, app::exactly(*outcome.unused)},
                              Wanted{Wanted::Kind::kAtMost, kMaxUnused, judge},
                              {exact("without a session", "%", 2, *outcome.unused_without)}});
    if (!outcome.tight_milliseconds.empty()) {
      const double base = app::spread_of(outcome.base).median;
      std::vector<double> ratios;
      for (const double time : outcome.tight_milliseconds) ratios.push_back(time / base);
      report.figures.push_back(
          {id + "_tight",
           {"step / base with the allocator limited so", "x", 3, app::spread_of(ratios)},
           std::nullopt,
           {}});
    }
  }
}

/// The speed as a share of that of an earlier plan on the same rank, both relative to their
/// baselines.
void add_share(Report& report, const std::string& id, const PipelinePlan& plan,
               const std::map<std::string, double>& earlier, bool judge) {
  const auto other = earlier.find(plan.as_fast_as);
  if (other == earlier.end()) return;
  report.figures.push_back(
      {id + "_share",
       {"its share of that plan's speed", "", 3, app::exactly(other->second / earlier.at(plan.id))},
       Wanted{Wanted::Kind::kAtLeast, plan.min_share, judge},
       {}});
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "A model for the CPU: seconds, not judged");
  app.add_option("--repeats", options.repeats, "Timed steps of each row")
      ->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.stages, "Only these ranks: 0,3")
      ->delimiter(',')
      ->check(CLI::Range(0, kStages - 1));
  app.add_option("--chunks", options.chunks, "Numbers of chunks on each stage: 1,2")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--micro-batches", options.micro_batches, "Micro-batches, instead of 16")
      ->check(CLI::PositiveNumber);
  std::vector<std::string> known;
  for (const PipelinePlan& plan : pipeline_plans()) known.push_back(plan.id);
  app.add_option("--plans", options.plans, "These plans: rules,budget")
      ->delimiter(',')
      ->check(CLI::IsMember(known))
      ->capture_default_str();
  app.add_option("--save", options.save, "Save the profile and plan of every row in this folder")
      ->type_name("FOLDER");
  app.add_option("--budget", options.budget, "Budget of the rows with one")->capture_default_str();
  app.add_option("--window", options.window,
                 "Constant offload_window and prefetch_window for rows with rules: 64MiB");
  app.add_option("--slowdown", options.slowdown,
                 "Share of a step that waits may add in rows with rules")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--tensor-ranks", options.tensor_ranks,
                 "Emulated tensor-parallel ranks of rows with shards")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--tensor-link", options.tensor_link, "Speed of their link, GB/s each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void measure_rank(const Options& options, const Case& rank, bool judge, Report& report) {
  std::map<std::string, double> ratios;  // By the plan's id.
  std::optional<Bytes> least;            // Lowest peak of plans that recompute.
  std::optional<SingleStage> stage;
  std::optional<bool> experts;
  for (const PipelinePlan& plan : pipeline_plans()) {
    const auto& wanted = options.plans;
    if (std::find(wanted.begin(), wanted.end(), plan.id) == wanted.end()) continue;
    if (experts != plan.experts) {
      stage.reset();  // Frees its memory first.
      stage.emplace(shape_of(rank.small, rank.device, plan.experts), rank.rank);
      experts = plan.experts;
    }
    const std::string what = plan.rules.empty() ? plan.text + " " + options.budget : plan.text;
    const std::string text = rank.text + ", rank " + std::to_string(rank.rank.stage) + ", " + what;
    std::cerr << "measuring: " << text << " ...\n";
    const SessionOptions given = options_for(rank.device, rank.small);
    std::shared_ptr<ShardGroup> shards;
    if (plan.shards) {
      shards = emulated_shards(rank.device, options.tensor_ranks, options.tensor_link * 1e9);
    }
    const Outcome outcome = measure(
        *stage,
        plan.rules.empty() ? by_budget(given, options.budget) : by_rules(given, plan, options),
        shards, options.repeats, options.save, rank.id + "." + plan.id);
    ratios[plan.id] = app::spread_of(outcome.ratios).median;
    std::cerr << "  " << with_decimals(ratios[plan.id], 3) << "x, peak "
              << with_decimals(in_gib(outcome.peak), 3) << " of "
              << with_decimals(in_gib(outcome.baseline_peak), 3) << " GiB"
              << (lowers(outcome) ? ", peak reduction ratio " +
                                        with_decimals(reduction_ratio(outcome), 1) + " %\n"
                                  : "\n");
    const std::string id = "pipeline." + rank.id + "." + plan.id;
    std::optional<Wanted> most_peak;
    if (plan.smallest && least) most_peak = Wanted{Wanted::Kind::kAtMost, in_gib(*least), judge};
    add_figures(report, id, text, plan, outcome, most_peak, judge);
    if (plan.id.starts_with("recompute"))
      least = std::min(least.value_or(outcome.peak), outcome.peak);
    add_share(report, id, plan, ratios, judge);
    add_line(*report.side_by_side, rank, what, outcome);
    report.save();
  }
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
                     {"window", options.window.empty() ? "default" : options.window},
                     {"slowdown", options.slowdown},
                     {"tensor ranks", options.tensor_ranks},
                     {"tensor link GB/s", options.tensor_link}};
  report.side_by_side = empty_table();
  for (const Case& each : cases) measure_rank(options, each, judge, report);
  report.notes.emplace_back(
      "One process, emulated neighbours: no waits for other ranks that could hide copies.");
  add_training_notes(report, judge);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("pipeline", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
