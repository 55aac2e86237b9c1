#include "train/run/train_figures.hpp"

#include <algorithm>
#include <cmath>

#include "spillway/core/numbers.hpp"
#include "util/text/spread.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

/// Whether the step executed the plan and nothing else, or had no session.
bool is_planned(const TrainingStep& step) {
  return step.kind.value_or(StepKind::kPlanned) == StepKind::kPlanned;
}

/// Of forward and backward, in ms; nothing if there are too few steps.
std::optional<double> median_time(const TrainingRun& run, std::size_t warm_up) {
  std::vector<double> times;
  for (std::size_t i = warm_up; i < run.steps.size(); ++i) {
    if (is_planned(run.steps[i])) times.push_back(run.steps[i].milliseconds);
  }
  if (times.empty()) return std::nullopt;
  return spread_of(times).median;
}

/// The steps that show what the plan does to memory.
struct Peaks {
  std::size_t steps = 0;
  Bytes most;  ///< Above what was allocated before the step.
};

Peaks peaks_from(const TrainingRun& run, std::size_t first) {
  Peaks peaks;
  for (std::size_t i = first; i < run.steps.size(); ++i) {
    if (!is_planned(run.steps[i])) continue;
    ++peaks.steps;
    peaks.most = std::max(peaks.most, run.steps[i].peak - run.steps[i].before);
  }
  return peaks;
}

Peaks peaks_of(const TrainingRun& run, const TrainFigures& figures) {
  Peaks peaks;
  for (const std::size_t first : {figures.warm_up, figures.settled, std::size_t{0}}) {
    if (peaks.steps == 0) peaks = peaks_from(run, first);
  }
  return peaks;
}

std::optional<Bytes> step_peak(const TrainingRun& run, const TrainFigures& figures) {
  const Peaks peaks = peaks_of(run, figures);
  return peaks.steps > 0 ? std::optional(peaks.most) : std::nullopt;
}

std::string text_of(std::optional<Bytes> bytes) { return bytes ? to_string(*bytes) : "-"; }

double last_loss(const TrainingRun& run) { return run.steps.back().loss; }

std::optional<double> ratio(const TrainFigures& figures) {
  if (!figures.without) return std::nullopt;
  const auto without = median_time(*figures.without, figures.warm_up);
  const auto with = median_time(figures.with, figures.warm_up);
  if (!without || !with) return std::nullopt;
  return *with / *without;
}

/// The planner's predictions for its plan; none for plans by rules.
struct Predicted {
  Bytes budget;
  Bytes peak;
  double step_ms = 0;
  double base_ms = 0;
  double bound_ms = 0;
};

std::optional<Predicted> predicted(const TrainFigures& figures) {
  if (figures.plan == nullptr || !figures.plan->budget) return std::nullopt;
  const Plan& plan = *figures.plan;
  const auto milliseconds = [](const std::optional<std::int64_t>& ns) {
    return static_cast<double>(ns.value_or(0)) / 1e6;
  };
  return Predicted{*plan.budget, plan.predicted_peak.value_or(Bytes()),
                   milliseconds(plan.predicted_step_ns), milliseconds(plan.base_step_ns),
                   milliseconds(plan.bound_step_ns)};
}

std::string fallbacks_of(const SessionReport& report) {
  std::uint64_t count = 0;
  for (const auto& [reason, times] : report.fallbacks) count += times;
  return count == 0 ? "none" : std::to_string(count);
}

std::string bits_line(const Comparison& comparison, std::size_t steps) {
  const std::string compared = std::to_string(comparison.losses) + " losses and " +
                               std::to_string(comparison.gradients) + " gradients of " +
                               std::to_string(steps) + " steps compared";
  if (comparison.equal()) return "bits equal: yes (" + compared + ")\n";
  return "bits equal: no (" + compared + ", " + std::to_string(comparison.different) +
         " differ, first: " + comparison.first + ")\n";
}

std::optional<Bytes> budget_of(const TrainFigures& figures) {
  if (const auto planned = predicted(figures)) return planned->budget;
  if (!figures.report.budget || figures.report.budget->budget == Bytes()) return std::nullopt;
  return figures.report.budget->budget;
}

/// Empty: nothing was measured.
std::optional<bool> within_budget(const TrainFigures& figures, Bytes budget) {
  const std::optional<Bytes> peak = step_peak(figures);
  return peak ? std::optional(*peak <= budget) : std::nullopt;
}

std::string budget_line(const TrainFigures& figures, Bytes budget) {
  const auto counted = [](std::uint64_t count, const std::string& kind) {
    return std::to_string(count) + " " + kind + (count == 1 ? "step" : "steps");
  };
  const Peaks peaks = peaks_of(figures.with, figures);
  const std::optional<bool> within = within_budget(figures, budget);
  std::string line = "within the budget: ";
  if (within) {
    line += std::string(*within ? "yes" : "no") + " (" + to_string(peaks.most) + " of " +
            to_string(budget) + ", " + counted(peaks.steps, "") + ")";
  } else {
    line += "not measured (no step executed the plan and nothing else)";
  }
  if (!figures.report.budget) return line + "\n";
  std::string others;
  for (const auto& [kind, steps] : figures.report.budget->steps) {
    if (kind == StepKind::kPlanned) continue;
    others += (others.empty() ? "; not counted: " : ", ") +
              counted(steps.steps, std::string(to_string(kind)) + " ") + " with at most " +
              to_string(steps.peak);
  }
  return line + others + "\n";
}

/// Of a run without a session.
std::string baseline_text(const TrainFigures& figures) {
  const auto time = median_time(figures.with, figures.warm_up);
  TextTable table({{"", TextTable::Align::kLeft}, {"", TextTable::Align::kRight}});
  table.add({"peak of a step", text_of(step_peak(figures))});
  table.add({"step (forward and backward)", time ? with_decimals(*time, 1) + " ms" : "-"});
  table.add({"loss of the last step", with_decimals(last_loss(figures.with), 4)});
  return table.text(2);
}

/// Rows of "without", "with" and, where a planner made the plan, "predicted".
class FiguresTable {
 public:
  explicit FiguresTable(const TrainFigures& figures)
      : figures_(figures), planned_(predicted(figures)), table_(columns(planned_.has_value())) {}

  void add(std::string name, std::string without, std::string with, std::string planned = "") {
    table_.add(planned_ ? std::vector{std::move(name), std::move(without), std::move(with),
                                      std::move(planned)}
                        : std::vector{std::move(name), std::move(without), std::move(with)});
  }

  void add_memory() {
    const auto peak = [this](const TrainingRun& run) { return text_of(step_peak(run, figures_)); };
    if (planned_) add("budget", "", to_string(planned_->budget));
    add("peak of a step", of_base(peak), peak(figures_.with),
        planned_ ? to_string(planned_->peak) : "");
    add("saved for backward, peak", of_last_step(to_string(figures_.report.saved_peak_without)),
        of_last_step(to_string(figures_.report.saved_peak_with)));
  }

  /// The report has figures of the last step that did not record, if there was one.
  [[nodiscard]] std::string of_last_step(std::string text) const {
    return figures_.report.steps > figures_.report.recorded_steps ? std::move(text) : "-";
  }

  void add_times() {
    const auto time = [this](const TrainingRun& run) {
      const auto found = median_time(run, figures_.warm_up);
      return found ? with_decimals(*found, 1) + " ms" : std::string("-");
    };
    const auto times = ratio(figures_);
    add("step (forward and backward)", of_base(time), time(figures_.with),
        planned_ ? with_decimals(planned_->step_ms, 1) + " ms" : "");
    add("step time ratio", "", times ? with_decimals(*times, 3) + " x" : "-",
        planned_ ? with_decimals(planned_->step_ms / planned_->base_ms, 3) + " x" : "");
    if (planned_) {
      add("bound of any plan", "", "",
          with_decimals(planned_->bound_ms / planned_->base_ms, 3) + " x");
    }
  }

  template <typename Text>
  [[nodiscard]] std::string of_base(const Text& text) const {
    return figures_.without ? text(*figures_.without) : std::string("-");
  }

  [[nodiscard]] std::string text() const { return table_.text(2); }

 private:
  static std::vector<TextTable::Column> columns(bool planned) {
    using Align = TextTable::Align;
    std::vector<TextTable::Column> made = {
        {"", Align::kLeft}, {"without", Align::kRight}, {"with", Align::kRight}};
    if (planned) made.push_back({"predicted", Align::kRight});
    return made;
  }

  const TrainFigures& figures_;
  std::optional<Predicted> planned_;
  TextTable table_;
};

}  // namespace

std::optional<Bytes> step_peak(const TrainFigures& figures) {
  return step_peak(figures.with, figures);
}

std::optional<double> reached_reduction(const TrainFigures& figures) {
  if (!figures.reduction || !figures.without) return std::nullopt;
  const std::optional<Bytes> without = step_peak(*figures.without, figures);
  const std::optional<Bytes> with = step_peak(figures);
  if (!without || !with) return std::nullopt;
  return figures.reduction->reached(*without, *with);
}

std::string to_text(const TrainFigures& figures) {
  if (!figures.managed) return baseline_text(figures);
  const SessionReport& report = figures.report;
  FiguresTable table(figures);
  table.add_memory();
  table.add_times();
  const auto loss = [](const TrainingRun& run) { return with_decimals(last_loss(run), 4); };
  table.add("loss of the last step", table.of_base(loss), loss(figures.with));
  table.add("offloaded, reloaded in the last step", "",
            table.of_last_step(to_string(report.bytes_out) + ", " + to_string(report.bytes_back)));
  table.add("recomputed in the last step", "",
            table.of_last_step(to_string(report.bytes_recomputed) + " by " +
                               std::to_string(report.repeated_calls) + " operators"));
  table.add("steps that recorded", "", std::to_string(report.recorded_steps));
  table.add("fallbacks", "", fallbacks_of(report));
  std::string text = table.text();
  if (const auto budget = budget_of(figures)) text += budget_line(figures, *budget);
  if (report.budget && !report.budget->problem.empty()) {
    text += "planning problem: " + report.budget->problem + "\n";
  }
  if (figures.comparison) text += bits_line(*figures.comparison, figures.with.steps.size());
  return text;
}

Json to_json(const TrainFigures& figures) {
  const auto run = [&](const TrainingRun& each) {
    Json json;
    if (const auto time = median_time(each, figures.warm_up)) json["step_ms"] = *time;
    const std::optional<Bytes> peak = step_peak(each, figures);
    json["step_peak"] = peak ? Json(peak->count()) : Json();
    json["losses"] = Json::array();
    json["milliseconds"] = Json::array();
    json["peaks"] = Json::array();
    json["kinds"] = Json::array();
    for (const TrainingStep& step : each.steps) {
      // JSON has no NaN.
      const double loss = step.loss;
      json["losses"].push_back(std::isfinite(loss) ? Json(loss) : Json());
      json["milliseconds"].push_back(step.milliseconds);
      json["peaks"].push_back((step.peak - step.before).count());
      json["kinds"].push_back(step.kind ? Json(to_string(*step.kind)) : Json());
    }
    return json;
  };
  Json json = {
      {"schema", "spillway.train/1"}, {"model", figures.model}, {"warm_up", figures.warm_up}};
  if (figures.without) json["without"] = run(*figures.without);
  json["with"] = run(figures.with);
  if (const auto times = ratio(figures)) json["step_time_ratio"] = *times;
  if (const auto planned = predicted(figures)) {
    json["predicted"] = {{"budget", planned->budget.count()},
                         {"step_peak", planned->peak.count()},
                         {"step_ms", planned->step_ms},
                         {"base_ms", planned->base_ms},
                         {"bound_ms", planned->bound_ms}};
  }
  if (const auto budget = figures.managed ? budget_of(figures) : std::nullopt) {
    const Peaks peaks = peaks_of(figures.with, figures);
    const std::optional<bool> within = within_budget(figures, *budget);
    json["budget"] = {{"bytes", budget->count()},
                      {"measured_steps", peaks.steps},
                      {"measured_peak", within ? Json(peaks.most.count()) : Json()},
                      {"within", within ? Json(*within) : Json()}};
  }
  if (figures.reduction) {
    json["simulated"] = {{"kept_peak", figures.reduction->kept.count()},
                         {"least_peak", figures.reduction->least.count()}};
  }
  if (const auto reached = reached_reduction(figures)) json["R"] = *reached;
  if (figures.comparison) {
    json["bits_equal"] = figures.comparison->equal();
    json["losses_compared"] = figures.comparison->losses;
    json["gradients_compared"] = figures.comparison->gradients;
    json["different"] = figures.comparison->different;
  }
  if (figures.managed) json["report"] = Json::parse(figures.report.to_json());
  return json;
}

}  // namespace spillway::app
