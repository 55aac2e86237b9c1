/// Question: what does a session cost, and what does it save, on a stack of Llama-shaped layers?
///
/// How to read it: every row trains the same model on the same tokens, in turns without and with a
/// session; its figure is the median ratio of the two. "peak" is the allocator's own maximum in a
/// step, less what was allocated before it (weights, gradients). "gradients that differ" counts
/// those that differ in a bit from those without a session; "first step" is the ratio of the
/// recording step.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "checkpoint.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/torch/session.hpp"
#include "support/small_llama.hpp"
#include "support/step_trace.hpp"
#include "support/training_program.hpp"
#include "train/model/device_memory.hpp"
#include "train/run/measured_model.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr const char* kQuestion =
    "What does a session cost, and what does it save, on a stack of Llama-shaped layers?";

struct Options {
  bool small = false;
  bool explain = false;
  bool fuse = true;
  int repeats = 7;
  std::vector<std::string> rows;  // Empty: all.
  std::filesystem::path traces;   // Folder; empty: no traces.
};

/// One set of rules.
struct Row {
  std::string id;
  std::string text;
  std::string rules;  // TOML.
  std::optional<Wanted> wanted;
  std::optional<double> max_memory = std::nullopt;  // Upper limit of the peak, GiB.
  // Host memory to pin at start, in the background: as much as the row needs, so that none is
  // pinned during timed steps.
  Bytes prepare = {};
};

struct Outcome {
  std::vector<double> base;          // Steps without a session, in ms.
  std::vector<double> milliseconds;  // Steps with it, in turns with those.
  std::vector<double> ratios;        // milliseconds / base.
  double first_step = 0;             // Ratio of the recording step.
  double peak = 0;                   // GiB.
  int different = 0;
  SessionReport report;
  LinkSpeed link;
};

class Bench {
 public:
  /// `window`: the offload and prefetch windows of the sessions; default windows if empty.
  Bench(LlamaShape shape, int repeats, bool explain, bool fuse, std::optional<Bytes> window)
      : repeats_(repeats), explain_(explain), fuse_(fuse), window_(window), measured_(shape) {}

  /// Steps without and with the row's session take turns, so that drift affects both. Traces of two
  /// more steps are written to the folder `traces`, unless it is empty.
  Outcome run(const Row& row, const std::filesystem::path& traces) {
    Session session(options_of(row));
    session.register_model(measured_.model());
    Outcome outcome;
    constexpr int kWarmUp = 3;
    for (int i = 0; i < repeats_ + kWarmUp; ++i) {
      const double base = measured_.step(nullptr).milliseconds;
      const app::MeasuredStep measured = measured_.step(&session);
      if (i == 0) outcome.first_step = measured.milliseconds / base;
      if (i < kWarmUp) continue;
      outcome.base.push_back(base);
      outcome.milliseconds.push_back(measured.milliseconds);
      outcome.ratios.push_back(measured.milliseconds / base);
      outcome.peak = in_gib(measured.peak);
    }
    outcome.report = session.report();
    outcome.link = session.profile()->link;
    if (!traces.empty()) {
      trace_without_and_with(
          measured_.tokens().device(), [&](Session* used) { (void)measured_.step(used); }, session,
          traces / row.id);
    }
    outcome.different = measured_.count_different(session);
    if (explain_) std::cerr << explain(*session.plan(), session.profile().get()) << '\n';
    return outcome;
  }

  /// The same model without a session, every layer checkpointed.
  Outcome run_checkpointed() {
    const auto checkpointed = [](const Llama& model, const at::Tensor& tokens) {
      return checkpointed_loss(model, tokens, tokens);
    };
    Outcome outcome;
    for (int i = 0; i < repeats_ + 1; ++i) {
      const double base = measured_.step(nullptr).milliseconds;
      const app::MeasuredStep measured = measured_.step(nullptr, checkpointed);
      if (i == 0) continue;
      outcome.base.push_back(base);
      outcome.milliseconds.push_back(measured.milliseconds);
      outcome.ratios.push_back(measured.milliseconds / base);
      outcome.peak = in_gib(measured.peak);
    }
    return outcome;
  }

  /// The peak without a session, in GiB.
  double base_peak() { return in_gib(measured_.step(nullptr).peak); }

  /// Forward and backward without a session, in milliseconds: medians.
  std::pair<double, double> base_parts() {
    const at::Tensor& tokens = measured_.tokens();
    std::vector<double> forward;
    std::vector<double> backward;
    for (int i = 0; i < repeats_; ++i) {
      app::wait_for_device(tokens.device());
      const auto begin = std::chrono::steady_clock::now();
      const at::Tensor loss = measured_.model().loss(tokens, tokens);
      app::wait_for_device(tokens.device());
      const auto middle = std::chrono::steady_clock::now();
      loss.backward();
      app::wait_for_device(tokens.device());
      const auto end = std::chrono::steady_clock::now();
      forward.push_back(std::chrono::duration<double, std::milli>(middle - begin).count());
      backward.push_back(std::chrono::duration<double, std::milli>(end - middle).count());
    }
    return {app::spread_of(forward).median, app::spread_of(backward).median};
  }

 private:
  [[nodiscard]] SessionOptions options_of(const Row& row) const {
    SessionOptions options;
    options.rules = parse_rules(row.rules, row.id + ".toml");
    options.device = measured_.tokens().device();
    if (measured_.tokens().is_cuda()) options.prepare = row.prepare;
    options.offload_window = options.prefetch_window = window_;
    options.time_waits_every = 4;  // Includes a warm step.
    options.fuse_replays = fuse_;
    return options;
  }

  int repeats_;
  bool explain_;
  bool fuse_;
  std::optional<Bytes> window_;
  app::MeasuredModel measured_;
};

std::vector<Row> rows(int layers, bool judge) {
  const std::string but_last = "0.." + std::to_string(layers - 2);
  const auto at_most = [judge](double limit) {
    return Wanted{Wanted::Kind::kAtMost, limit, judge};
  };
  // The small model's buffers are smaller, and would all fit into larger windows.
  const std::string min_size = std::string("min_size = \"") + (judge ? "1 MiB" : "64 KiB") + "\"\n";
  const std::string window = judge ? "\"512 MiB\"" : "\"256 KiB\"";
  const std::string windows =
      "[limits]\noffload_window = " + window + "\nprefetch_window = " + window + "\n";
  const std::string cheap =
      "[[rule]]\nmade_in = [\"layers.*.norm\", \"layers.*.act\"]\naction = \"recompute\"\n"
      "[[rule]]\nmade_in = \"layers.*.core\"\nproducer = \"aten::clone\"\naction = \"recompute\"\n";
  const std::string small = "[[rule]]\nlayers = \"" + but_last + "\"\n" + min_size +
                            "max_size = \"128 MiB\"\naction = \"offload\"\n" + windows;
  return {
      {"keep", "intercepted, everything kept", "", at_most(1.005)},
      {"attention", "attention and residuals offloaded, but of the last layer",
       "[[rule]]\nlayers = \"" + but_last +
           "\"\nsaved_by = [\"*scaled_dot*\", \"*attention*\", \"*rms_norm*\"]\n" + min_size +
           "action = \"offload\"\n",
       at_most(1.015), std::nullopt, 7_GiB},
      {"all", "everything offloaded, but of the last layer",
       "[[rule]]\nlayers = \"" + but_last + "\"\n" + min_size + "action = \"offload\"\n",
       std::nullopt, std::nullopt, 24_GiB},
      {"recorded", "every call recorded, one buffer recomputed",
       "[[rule]]\nlayers = \"0\"\nmade_in = \"layers.0.mlp.norm\"\naction = \"recompute\"\n",
       at_most(1.01)},
      {"cheap", "norms, SwiGLU, reshapes recomputed", cheap, at_most(1.02), 14.4},
      {"cheap_small", "the same, small buffers offloaded", cheap + small, at_most(1.03), 10.2,
       7_GiB},
      {"mlp", "all of the MLP recomputed as well, but of the last layer",
       cheap + "[[rule]]\nlayers = \"" + but_last +
           "\"\nmade_in = \"layers.*.mlp.fc1\"\naction = \"recompute\"\n" + small,
       at_most(1.13), 3.6, 7_GiB},
      {"selective", "every layer recomputed, but not attention",
       "[internevo]\ncheckpoint = true\nselective_checkpoint = true\n", at_most(467.0 / 385.0),
       3.8},
      {"selective_out", "the same, attention's inputs and outputs offloaded",
       "[[rule]]\nlayers = \"" + but_last +
           "\"\nmade_in = [\"layers.*.attention.qkv\", \"layers.*.attention.core\", "
           "\"layers.*.attention.proj\"]\naction = \"offload\"\n"
           "[[rule]]\nmade_in = \"layers.*.attention.core\"\naction = \"keep\"\n"
           "[[rule]]\ngroup_inputs = 1\naction = \"offload\"\n"
           "[[rule]]\nlayers = \"0..-1\"\naction = \"recompute\"\n" +
           windows,
       at_most(467.0 / 385.0), 3.8, 7_GiB},
      {"full", "every layer recomputed", "[internevo]\ncheckpoint = true\n", std::nullopt},
  };
}

void add_figures(Report& report, const Row& row, const Outcome& outcome) {
  Figure figure;
  figure.id = "layers." + row.id;
  figure.found = {row.text, "x", 3, app::spread_of(outcome.ratios)};
  figure.wanted = row.wanted;
  figure.beside = {
      {"step", "ms", 1, app::spread_of(outcome.milliseconds)},
      {"without", "ms", 1, app::spread_of(outcome.base)},
      {"peak", "GiB", 2, app::exactly(outcome.peak)},
      {"gradients that differ", "", 0, app::exactly(static_cast<double>(outcome.different))},
      {"out", "GiB", 2, app::exactly(in_gib(outcome.report.bytes_out))},
      {"back", "GiB", 2, app::exactly(in_gib(outcome.report.bytes_back))},
      {"late", "", 0, app::exactly(static_cast<double>(outcome.report.late_reloads))},
      {"waited to release", "ms", 1, app::exactly(in_milliseconds(outcome.report.waits.release))},
      {"to reload", "ms", 1, app::exactly(in_milliseconds(outcome.report.waits.reload))},
      {"in place", "ms", 1, app::exactly(in_milliseconds(outcome.report.waits.in_place))},
      {"not offloaded", "GiB", 2, app::exactly(in_gib(outcome.report.offloads_skipped.bytes))},
      {"recomputed", "GiB", 2, app::exactly(in_gib(outcome.report.bytes_recomputed))},
      {"by operators", "", 0, app::exactly(static_cast<double>(outcome.report.repeated_calls))},
      {"fused kernels", "", 0, app::exactly(static_cast<double>(outcome.report.fused_kernels))},
      {"demoted", "", 0, app::exactly(static_cast<double>(outcome.report.demoted.size()))},
      {"first step", "x", 2, app::exactly(outcome.first_step)}};
  const std::optional<Wanted> wanted = figure.wanted;
  report.figures.push_back(std::move(figure));
  if (!row.max_memory) return;
  Figure memory;
  memory.id = "layers." + row.id + "_peak";
  memory.found = {"its peak", "GiB", 2, app::exactly(outcome.peak)};
  memory.wanted = Wanted{Wanted::Kind::kAtMost, *row.max_memory, wanted && wanted->applies};
  report.figures.push_back(std::move(memory));
}

/// Full recompute compared with checkpointed layers.
void add_checkpoint(Report& report, const Outcome& full, const Outcome& checkpointed, bool judge) {
  const auto median = [](const std::vector<double>& values) {
    return app::spread_of(values).median;
  };
  Figure time;
  time.id = "layers.full_over_checkpoint";
  time.found = {"every layer recomputed, compared with checkpointed layers", "x", 3,
                app::exactly(median(full.ratios) / median(checkpointed.ratios))};
  time.wanted = Wanted{Wanted::Kind::kAtMost, 1.02, judge};
  time.beside = {{"checkpointed step", "ms", 1, app::spread_of(checkpointed.milliseconds)},
                 {"without", "ms", 1, app::spread_of(checkpointed.base)},
                 {"checkpointed peak", "GiB", 2, app::exactly(checkpointed.peak)}};
  report.figures.push_back(std::move(time));
  Figure peak;
  peak.id = "layers.full_peak";
  peak.found = {"its peak", "GiB", 2, app::exactly(full.peak)};
  peak.wanted = Wanted{Wanted::Kind::kAtMost, checkpointed.peak, judge};
  report.figures.push_back(std::move(peak));
}

/// A lower bound for the step time with everything offloaded: compute or link, whichever is slower,
/// in forward and in backward.
void add_limit(Report& report, const Outcome& outcome, std::pair<double, double> parts,
               bool judge) {
  if (outcome.link.out <= 0 || outcome.link.back <= 0) return;
  const auto planned = static_cast<double>(outcome.report.planned_reduction.count());
  const double out = planned / outcome.link.out * 1e3;
  const double back = planned / outcome.link.back * 1e3;
  const double limit = std::max(parts.first, out) + std::max(parts.second, back);
  std::vector<double> ratios;
  for (const double time : outcome.milliseconds) ratios.push_back(time / limit);
  Figure figure;
  figure.id = "layers.all_limit";
  figure.found = {"the same, compared with what the link allows", "x", 3, app::spread_of(ratios)};
  figure.wanted = Wanted{Wanted::Kind::kAtMost, 1.02, judge};
  figure.beside = {{"limit", "ms", 1, app::exactly(limit)},
                   {"forward", "ms", 1, app::exactly(parts.first)},
                   {"copies out", "ms", 1, app::exactly(out)},
                   {"backward", "ms", 1, app::exactly(parts.second)},
                   {"copies back", "ms", 1, app::exactly(back)}};
  report.figures.push_back(std::move(figure));
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "A model for the CPU: seconds, not judged");
  app.add_flag("--explain", options.explain, "Print the plan of every row");
  app.add_flag("!--no-fuse", options.fuse,
               "Recompute consecutive elementwise operators with one kernel each");
  app.add_option("--repeats", options.repeats, "Timed steps of each row")
      ->check(CLI::PositiveNumber);
  app.add_option("--row", options.rows, "Measure these rows only, by their names in JSON");
  app.add_option("--trace", options.traces,
                 "Write traces of a step without and with the session into this folder, which "
                 "bench/layers/compare_traces.py compares");
}

LlamaShape shape_of(const Options& options) {
  LlamaShape shape;
  shape.device = app::best_device();
  return shape.device.is_cuda() && !options.small ? shape : small_llama(shape.device);
}

void measure_all(const Options& options, Report& report) {
  const LlamaShape shape = shape_of(options);
  const bool judge = shape.device.is_cuda() && !options.small;
  report.settings = {{"layers", shape.layers},
                     {"hidden", shape.hidden},
                     {"tokens", shape.tokens},
                     {"replays fused", options.fuse}};
  // With default windows a small model would never be offloaded.
  const std::optional<Bytes> window = judge ? std::nullopt : std::optional<Bytes>(1_MiB);
  if (!options.traces.empty()) std::filesystem::create_directories(options.traces);
  Bench bench(shape, options.repeats, options.explain, options.fuse, window);
  for (const Row& row : rows(shape.layers, judge)) {
    const bool wanted = options.rows.empty() || std::find(options.rows.begin(), options.rows.end(),
                                                          row.id) != options.rows.end();
    if (!wanted) continue;
    std::cerr << "measuring: " << row.text << " ...\n";
    const Outcome outcome = bench.run(row, options.traces);
    add_figures(report, row, outcome);
    if (row.id == "all") add_limit(report, outcome, bench.base_parts(), judge);
    if (row.id == "full") add_checkpoint(report, outcome, bench.run_checkpointed(), judge);
  }
  Figure peak;
  peak.id = "layers.base_peak";
  peak.found = {"peak without Spillway", "GiB", 2, app::exactly(bench.base_peak())};
  report.figures.push_back(std::move(peak));
  add_training_notes(report, judge);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("layers", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
