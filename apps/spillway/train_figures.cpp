#include "train_figures.hpp"

#include <algorithm>
#include <cmath>

#include "common/spread.hpp"
#include "common/text_table.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

/// Steps that tell nothing about the others: libraries start, and the session records.
constexpr std::size_t kWarmUp = 2;

/// Of forward and backward, in ms; nothing if there are too few steps.
std::optional<double> median_time(const TrainingRun& run) {
  std::vector<double> times;
  for (std::size_t i = kWarmUp; i < run.steps.size(); ++i) {
    times.push_back(run.steps[i].milliseconds);
  }
  if (times.empty()) return std::nullopt;
  return spread_of(times).median;
}

/// The allocator's, of the steps after the warm-up.
Bytes device_peak(const TrainingRun& run) {
  Bytes peak;
  for (std::size_t i = std::min(kWarmUp, run.steps.size() - 1); i < run.steps.size(); ++i) {
    peak = std::max(peak, run.steps[i].peak);
  }
  return peak;
}

double last_loss(const TrainingRun& run) { return run.steps.back().loss.item<double>(); }

std::optional<double> ratio(const TrainFigures& figures) {
  if (!figures.without) return std::nullopt;
  const auto without = median_time(*figures.without);
  const auto with = median_time(figures.with);
  if (!without || !with) return std::nullopt;
  return *with / *without;
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

}  // namespace

std::string to_text(const TrainFigures& figures) {
  using Align = TextTable::Align;
  const SessionReport& report = figures.report;
  TextTable table({{"", Align::kLeft}, {"without", Align::kRight}, {"with", Align::kRight}});
  const auto of_base = [&](const auto& text) {
    return figures.without ? text(*figures.without) : std::string("-");
  };
  const auto time = [](const TrainingRun& run) {
    const auto found = median_time(run);
    return found ? fixed(*found, 1) + " ms" : std::string("-");
  };
  const auto loss = [](const TrainingRun& run) { return fixed(last_loss(run), 4); };
  if (figures.on_gpu) {
    const auto peak = [](const TrainingRun& run) { return to_string(device_peak(run)); };
    table.add({"device peak", of_base(peak), peak(figures.with)});
  }
  table.add({"saved for backward, peak", to_string(report.saved_peak_without),
             to_string(report.saved_peak_with)});
  table.add({"step (forward and backward)", of_base(time), time(figures.with)});
  const auto times = ratio(figures);
  table.add({"step time ratio", "", times ? fixed(*times, 3) + " x" : "-"});
  table.add({"loss of the last step", of_base(loss), loss(figures.with)});
  table.add({"moved out, back in a step", "",
             to_string(report.bytes_out) + ", " + to_string(report.bytes_back)});
  table.add({"recomputed in a step", "",
             to_string(report.bytes_remade) + " by " + std::to_string(report.repeated_calls) +
                 " operators"});
  table.add({"steps that recorded", "", std::to_string(report.recorded_steps)});
  table.add({"fallbacks", "", fallbacks_of(report)});
  std::string text = table.text(2);
  if (!figures.on_gpu) {
    text +=
        "On the CPU, whose allocator keeps no statistics, the peak is that of the buffers the\n"
        "session manages: as they were, and as if all were kept.\n";
  }
  if (figures.comparison) text += bits_line(*figures.comparison, figures.with.steps.size());
  return text;
}

Json to_json(const TrainFigures& figures) {
  const auto run = [&](const TrainingRun& each) {
    Json json;
    if (const auto time = median_time(each)) json["step_ms"] = *time;
    if (figures.on_gpu) json["device_peak"] = device_peak(each).count();
    json["losses"] = Json::array();
    json["milliseconds"] = Json::array();
    for (const TrainingStep& step : each.steps) {
      // JSON has no NaN.
      const double loss = step.loss.item<double>();
      json["losses"].push_back(std::isfinite(loss) ? Json(loss) : Json());
      json["milliseconds"].push_back(step.milliseconds);
    }
    return json;
  };
  Json json = {{"schema", "spillway.train/1"}, {"model", figures.model}};
  if (figures.without) json["without"] = run(*figures.without);
  json["with"] = run(figures.with);
  if (const auto times = ratio(figures)) json["step_time_ratio"] = *times;
  if (figures.comparison) {
    json["bits_equal"] = figures.comparison->equal();
    json["losses_compared"] = figures.comparison->losses;
    json["gradients_compared"] = figures.comparison->gradients;
    json["different"] = figures.comparison->different;
  }
  json["report"] = Json::parse(figures.report.to_json());
  return json;
}

}  // namespace spillway::app
