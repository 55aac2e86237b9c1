#include "train/run/train_figures.hpp"

#include <algorithm>
#include <cmath>

#include "spillway/core/numbers.hpp"
#include "util/spread.hpp"
#include "util/text_table.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

/// Of forward and backward, in ms; nothing if there are too few steps.
std::optional<double> median_time(const TrainingRun& run, std::size_t warm_up) {
  std::vector<double> times;
  for (std::size_t i = warm_up; i < run.steps.size(); ++i) {
    times.push_back(run.steps[i].milliseconds);
  }
  if (times.empty()) return std::nullopt;
  return spread_of(times).median;
}

/// What steps after the warm-up had allocated at most, above what was there before them.
Bytes step_peak(const TrainingRun& run, std::size_t warm_up) {
  Bytes peak;
  for (std::size_t i = std::min(warm_up, run.steps.size() - 1); i < run.steps.size(); ++i) {
    peak = std::max(peak, run.steps[i].peak - run.steps[i].before);
  }
  return peak;
}

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

std::string budget_line(const TrainFigures& figures, const Predicted& planned) {
  const Bytes peak = step_peak(figures.with, figures.warm_up);
  const std::size_t all = figures.with.steps.size();
  const std::size_t steps = all - std::min(figures.warm_up, all - 1);
  return std::string("within the budget: ") + (peak <= planned.budget ? "yes" : "no") + " (" +
         to_string(peak) + " of " + to_string(planned.budget) + ", " + std::to_string(steps) +
         (steps == 1 ? " step)\n" : " steps)\n");
}

/// Of a run without a session.
std::string baseline_text(const TrainFigures& figures) {
  const auto time = median_time(figures.with, figures.warm_up);
  TextTable table({{"", TextTable::Align::kLeft}, {"", TextTable::Align::kRight}});
  table.add({"peak of a step", to_string(step_peak(figures.with, figures.warm_up))});
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
    const auto peak = [this](const TrainingRun& run) {
      return to_string(step_peak(run, figures_.warm_up));
    };
    if (planned_) add("budget", "", to_string(planned_->budget));
    add("peak of a step", of_base(peak), peak(figures_.with),
        planned_ ? to_string(planned_->peak) : "");
    add("saved for backward, peak", to_string(figures_.report.saved_peak_without),
        to_string(figures_.report.saved_peak_with));
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

Bytes step_peak(const TrainFigures& figures) { return step_peak(figures.with, figures.warm_up); }

std::optional<double> reached_reduction(const TrainFigures& figures) {
  if (!figures.reduction || !figures.without) return std::nullopt;
  return figures.reduction->reached(step_peak(*figures.without, figures.warm_up),
                                    step_peak(figures));
}

std::string to_text(const TrainFigures& figures) {
  if (!figures.managed) return baseline_text(figures);
  const SessionReport& report = figures.report;
  FiguresTable table(figures);
  table.add_memory();
  table.add_times();
  const auto loss = [](const TrainingRun& run) { return with_decimals(last_loss(run), 4); };
  table.add("loss of the last step", table.of_base(loss), loss(figures.with));
  table.add("moved out, back in a step", "",
            to_string(report.bytes_out) + ", " + to_string(report.bytes_back));
  table.add("recomputed in a step", "",
            to_string(report.bytes_recomputed) + " by " + std::to_string(report.repeated_calls) +
                " operators");
  table.add("steps that recorded", "", std::to_string(report.recorded_steps));
  table.add("fallbacks", "", fallbacks_of(report));
  std::string text = table.text();
  if (const auto planned = predicted(figures)) text += budget_line(figures, *planned);
  if (figures.comparison) text += bits_line(*figures.comparison, figures.with.steps.size());
  return text;
}

Json to_json(const TrainFigures& figures) {
  const auto run = [&](const TrainingRun& each) {
    Json json;
    if (const auto time = median_time(each, figures.warm_up)) json["step_ms"] = *time;
    json["step_peak"] = step_peak(each, figures.warm_up).count();
    json["losses"] = Json::array();
    json["milliseconds"] = Json::array();
    json["peaks"] = Json::array();
    for (const TrainingStep& step : each.steps) {
      // JSON has no NaN.
      const double loss = step.loss;
      json["losses"].push_back(std::isfinite(loss) ? Json(loss) : Json());
      json["milliseconds"].push_back(step.milliseconds);
      json["peaks"].push_back((step.peak - step.before).count());
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
