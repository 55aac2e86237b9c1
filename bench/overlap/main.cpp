/// Question: how much of the token exchange between expert-parallel ranks is hidden behind compute,
/// and does a session change that?
///
/// How to read it: one process is one of several expert-parallel ranks. It has no peers: an
/// emulated link (paced_link.hpp) takes as long for each exchange as the bytes would at the given
/// speed, on a stream of its own, and copies them. Every row is forward and backward of the same
/// model with one kind of overlap (docs/moe.md): "none" waits for each exchange at once, "shared"
/// runs the shared expert meanwhile, "halves" also the experts for the other half of the tokens.
/// Rows are timed in turns.
///
/// "exchanges" is the time the link was busy in a step, "exposed" how long compute waited for it,
/// both by events on the streams; "hidden" is the difference, as a share of the first. "step" is on
/// the host's clock until the device is done. Rows "with a budget" have a session with that budget;
/// "bits differ" counts gradients that differ in a bit from those without one.
///
/// The emulated link uses no multiprocessors of the GPU, NCCL does: real exchanges slow compute
/// down a little more. --trace writes the last step of each row for Perfetto (ui.perfetto.dev).
#include <algorithm>
#include <iostream>
#include <optional>

#include <ATen/Context.h>
#include <CLI/CLI.hpp>

#include "paced_link.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/trace/trace.hpp"
#include "support/settle.hpp"
#include "support/training_program.hpp"
#include "train/run/measured_model.hpp"
#include "util/files.hpp"
#include "util/text/budget_text.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr const char* kQuestion =
    "How much of the exchange between expert-parallel ranks is hidden behind compute?";

constexpr int kWarmUp = 3;

struct Options {
  bool small = false;
  int repeats = 7;
  int ranks = 8;
  int experts = 2;  // On this rank.
  int layers = 0;   // 0: those of the case.
  std::int64_t tokens = 0;
  double capacity = 0;
  std::vector<double> links = {50};  // GB/s
  std::vector<std::string> overlaps = {"none", "shared", "halves"};
  std::string budget = "60%";
  std::string trace;
};

MoeOverlap overlap_of(const std::string& word) {
  if (word == "halves") return MoeOverlap::kHalves;
  return word == "none" ? MoeOverlap::kNone : MoeOverlap::kShared;
}

LlamaShape shape_of(const Options& options, bool small, at::Device device) {
  LlamaShape shape;
  shape.layers = 4;
  shape.moe.ffn = 7168;
  shape.moe.shared_ffn = 7168;
  if (small) {
    shape = {.layers = 2,
             .hidden = 128,
             .heads = 4,
             .kv_heads = 2,
             .ffn = 256,
             .tokens = 512,
             .vocabulary = 256};
    shape.moe.ffn = 256;
    shape.moe.shared_ffn = 256;
    shape.dtype = at::kFloat;
  }
  if (options.layers > 0) shape.layers = options.layers;
  if (options.tokens > 0) shape.tokens = options.tokens;
  shape.moe.experts = options.experts * options.ranks;
  shape.moe.layers = "every 1";
  shape.moe.capacity_factor = options.capacity;
  shape.device = device;
  return shape;
}

/// A model with one kind of overlap, and its measurements.
struct Row {
  std::string overlap;
  bool with_session = false;
  std::shared_ptr<app::MeasuredModel> model;
  std::unique_ptr<Session> session;
  std::vector<double> steps, exchanges, exposed, ratios;  // Milliseconds; ratios to the first row.
  LinkedStep last;
  Bytes peak;
  int different = 0;

  [[nodiscard]] std::string text() const {
    return "overlap " + overlap + (with_session ? ", with a budget" : "");
  }
};

app::MeasuredStep step(Row& row, PacedLink& link) {
  const auto marked = [&](const Llama& model, const at::Tensor& tokens) {
    link.begin_step();
    at::Tensor loss = model.loss(tokens, tokens);
    link.begin_backward();
    return loss;
  };
  const app::MeasuredStep measured = row.model->step(row.session.get(), marked);
  row.last = link.end_step();
  return measured;
}

std::unique_ptr<Session> session_for(const std::string& budget_text, const Llama& model,
                                     at::Device device, bool small) {
  SessionOptions options;
  options.device = device;
  if (device.is_cuda()) options.prepare = 12_GiB;
  if (small) options.small = 4_KiB;
  const app::BudgetText budget = app::parse_budget(budget_text);
  const auto* bytes = std::get_if<Bytes>(&budget);
  options.budget =
      bytes != nullptr ? Budget(*bytes) : Budget::share(std::get<app::Share>(budget).value);
  options.plan_in_background = false;  // Settles after a known number of steps.
  auto session = std::make_unique<Session>(std::move(options));
  session->register_model(model);
  return session;
}

std::vector<Row> rows_of(const Options& options, const LlamaShape& shape, PacedLink& link,
                         bool small) {
  std::vector<Row> rows;
  for (const std::string& overlap : options.overlaps) {
    LlamaShape with = shape;
    with.moe.overlap = overlap_of(overlap);
    with.moe.group = link.group();
    at::manual_seed(1);  // The same tokens in all rows, and so the same load of each expert.
    const auto model = std::make_shared<app::MeasuredModel>(with);
    Row baseline;
    baseline.overlap = overlap;
    baseline.model = model;
    for (int i = 0; i < kWarmUp; ++i) (void)step(baseline, link);
    rows.push_back(std::move(baseline));
    if (options.budget == "none") continue;
    Row within;
    within.overlap = overlap;
    within.with_session = true;
    within.model = model;
    within.session = session_for(options.budget, model->model(), shape.device, small);
    settle(
        *within.session, [&] { (void)step(within, link); }, kStepsToSettle, 3 * kStepsToSettle);
    rows.push_back(std::move(within));
  }
  return rows;
}

void measure_in_turns(std::vector<Row>& rows, PacedLink& link, int repeats) {
  for (int i = 0; i < repeats; ++i) {
    for (Row& row : rows) {
      const app::MeasuredStep measured = step(row, link);
      row.steps.push_back(measured.milliseconds);
      row.ratios.push_back(measured.milliseconds / rows.front().steps.back());
      row.exchanges.push_back(in_milliseconds(row.last.exchanges));
      row.exposed.push_back(in_milliseconds(row.last.exposed));
      row.peak = std::max(row.peak, measured.peak);
    }
  }
  for (Row& row : rows) {
    if (row.session != nullptr) row.different = row.model->count_different(*row.session);
  }
}

app::TextTable empty_table() {
  using Align = app::TextTable::Align;
  return app::TextTable({{"GB/s", Align::kRight},
                         {"overlap"},
                         {"memory"},
                         {"step ms", Align::kRight},
                         {"min..max", Align::kRight},
                         {"step / first", Align::kRight},
                         {"exchanges ms", Align::kRight},
                         {"exposed", Align::kRight},
                         {"hidden", Align::kRight},
                         {"peak GiB", Align::kRight},
                         {"bits equal"}});
}

/// In percent of the exchanges, by step.
std::vector<double> hidden_of(const Row& row) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < row.exchanges.size(); ++i) {
    // Threads wake up late, so that "exposed" may exceed "exchanges".
    shares.push_back(std::max(0.0, 100 * (1 - row.exposed[i] / row.exchanges[i])));
  }
  return shares;
}

void add_row(Report& report, double link, const std::string& budget, const Row& row) {
  const Spread steps = app::spread_of(row.steps);
  const Spread hidden = app::spread_of(hidden_of(row));
  const std::string speed = with_decimals(link, 0);
  report.side_by_side->add({speed, row.overlap, row.with_session ? "budget " + budget : "no budget",
                            with_decimals(steps.median, 1),
                            with_decimals(steps.min, 1) + ".." + with_decimals(steps.max, 1),
                            with_decimals(app::spread_of(row.ratios).median, 3),
                            with_decimals(app::spread_of(row.exchanges).median, 2),
                            with_decimals(app::spread_of(row.exposed).median, 2),
                            with_decimals(hidden.median, 1) + " %",
                            with_decimals(in_gib(row.peak), 3),
                            row.with_session ? (row.different == 0 ? "yes" : "no") : "-"});
  const std::string id =
      "overlap.link" + speed + "." + row.overlap + (row.with_session ? ".budget" : "");
  const auto exact = [](const char* name, const char* unit, int decimals, double value) {
    return Value{name, unit, decimals, app::exactly(value)};
  };
  std::vector<Value> beside = {{"step / first", "x", 3, app::spread_of(row.ratios)},
                               {"exchanges", "ms", 2, app::spread_of(row.exchanges)},
                               {"exposed", "ms", 2, app::spread_of(row.exposed)},
                               {"hidden", "%", 1, hidden},
                               exact("exchanged", "GiB", 3, in_gib(row.last.exchanged)),
                               exact("peak", "GiB", 3, in_gib(row.peak))};
  if (row.with_session) beside.push_back(exact("bits differ", "", 0, row.different));
  report.figures.push_back({id, {row.text() + ", " + speed + " GB/s", "ms", 1, steps}, {}, beside});
}

TraceProcess process_of(const Row& row, double link) {
  return {row.text() + ", " + with_decimals(link, 0) + " GB/s",
          {{"compute", row.last.compute}, {"link", row.last.link}},
          {}};
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "A model for the CPU: seconds, not judged");
  app.add_option("--repeats", options.repeats, "Timed steps of each row")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--links", options.links, "Speeds of the link, GB/s each way: 25,50,200")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--overlaps", options.overlaps, "Only these: none,shared,halves")
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "shared", "halves"}));
  app.add_option("--ranks", options.ranks, "Expert-parallel ranks")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--experts", options.experts, "Experts of a layer on each rank")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", options.layers, "Layers, instead of 4")->check(CLI::PositiveNumber);
  app.add_option("--tokens", options.tokens, "Tokens of a rank, instead of 8192")
      ->check(CLI::PositiveNumber);
  app.add_option("--capacity-factor", options.capacity, "0: no token is dropped")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--budget", options.budget,
                 "Budget of the rows with a session; none: no such rows")
      ->capture_default_str();
  app.add_option("--trace", options.trace, "Write the last step of each row as a Chrome trace")
      ->type_name("FILE");
}

void measure_all(const Options& options, Report& report) {
  const at::Device device = app::best_device();
  const bool small = options.small || !device.is_cuda();
  const LlamaShape shape = shape_of(options, small, device);
  report.settings = {{"ranks", options.ranks},
                     {"experts", shape.moe.experts},
                     {"chosen", shape.moe.chosen},
                     {"layers", shape.layers},
                     {"hidden", shape.hidden},
                     {"expert ffn", shape.moe.ffn},
                     {"shared ffn", shape.moe.shared_ffn},
                     {"tokens", shape.tokens},
                     {"capacity factor", shape.moe.capacity_factor},
                     {"budget", options.budget}};
  report.side_by_side = empty_table();
  Trace trace;
  for (const double speed : options.links) {
    std::cerr << "measuring: " << speed << " GB/s ...\n";
    PacedLink link(device, options.ranks, speed * 1e9);
    std::vector<Row> rows = rows_of(options, shape, link, small);
    measure_in_turns(rows, link, options.repeats);
    for (const Row& row : rows) {
      add_row(report, speed, options.budget, row);
      trace.processes.push_back(process_of(row, speed));
    }
  }
  if (!options.trace.empty()) write_output(options.trace, to_chrome_json(trace));
  report.notes.emplace_back(
      "One process, emulated peers: exchanges take the time of the bytes on the link, and no "
      "multiprocessors of the device.");
  add_training_notes(report, !small);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("overlap", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
