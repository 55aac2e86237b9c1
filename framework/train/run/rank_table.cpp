#include "train/run/rank_table.hpp"

#include "spillway/core/numbers.hpp"
#include "train/run/rank_texts.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

std::string layers_of(const PipelineLayer& model) {
  std::string text;
  for (int chunk = 0; chunk < model.options().chunks; ++chunk) {
    text += (chunk == 0 ? "" : "; ") + model.describe(chunk);
  }
  return text;
}

std::string bytes_text(const Json& number) {
  return number.is_null() ? "-" : to_string(Bytes(number.get<std::uint64_t>()));
}

}  // namespace

Json rank_figures(int rank, const TrainingJob& job, const TrainFigures& figures) {
  const SessionReport& report = figures.report;
  const Coordinates coordinates = job.topology().coordinates(rank);
  const auto action = [&](const char* name) {
    const auto found = report.actions.find(name);
    return found == report.actions.end() ? std::uint64_t{0} : found->second.bytes.count();
  };
  const std::optional<Bytes> peak = step_peak(figures);
  const Nanoseconds waits =
      report.waits.release + report.waits.reload + report.waits.in_place + report.waits.gather;
  return {{"rank", rank},
          {"data", coordinates.data},
          {"stage", coordinates.pipeline},
          {"tensor", coordinates.tensor},
          {"layers", layers_of(job.model())},
          {"kept", action("keep") + action("keep, sharded")},
          {"offloaded", action("offload") + action("offload, sharded")},
          {"sharded", action("keep, sharded") + action("offload, sharded")},
          {"recomputed", action("recompute")},
          {"wait_ms", std::chrono::duration<double, std::milli>(waits).count()},
          {"step_peak", peak ? Json(peak->count()) : Json()},
          {"saved_peak_without", report.saved_peak_without.count()},
          {"saved_peak_with", report.saved_peak_with.count()},
          {"host_peak", report.host_peak.count()},
          {"R", reached_reduction(figures).value_or(report.reduction_ratio)}};
}

std::vector<Json> gather_figures(const Group& everyone, const Json& mine, at::Device device) {
  std::vector<Json> all;
  for (const std::string& text : gather_texts(everyone, mine.dump(), device)) {
    all.push_back(Json::parse(text));
  }
  return all;
}

std::string rank_table(const std::vector<Json>& ranks) {
  using Align = TextTable::Align;
  TextTable table({{"rank", Align::kRight},
                   {"data", Align::kRight},
                   {"stage", Align::kRight},
                   {"tensor", Align::kRight},
                   {"layers", Align::kLeft},
                   {"kept", Align::kRight},
                   {"offloaded", Align::kRight},
                   {"recomputed", Align::kRight},
                   {"waits", Align::kRight},
                   {"peak of a step", Align::kRight},
                   {"saved: without", Align::kRight},
                   {"with", Align::kRight},
                   {"host", Align::kRight},
                   {"R", Align::kRight}});
  for (const Json& rank : ranks) {
    const bool moves = rank["offloaded"] != 0 || rank["recomputed"] != 0;
    table.add({std::to_string(rank["rank"].get<int>()), std::to_string(rank["data"].get<int>()),
               std::to_string(rank["stage"].get<int>()), std::to_string(rank["tensor"].get<int>()),
               rank["layers"].get<std::string>(), bytes_text(rank["kept"]),
               bytes_text(rank["offloaded"]), bytes_text(rank["recomputed"]),
               with_decimals(rank["wait_ms"].get<double>(), 1) + " ms",
               bytes_text(rank["step_peak"]), bytes_text(rank["saved_peak_without"]),
               bytes_text(rank["saved_peak_with"]), bytes_text(rank["host_peak"]),
               moves ? with_decimals(100 * rank["R"].get<double>(), 1) + " %" : "-"});
  }
  return table.text(2);
}

}  // namespace spillway::app
