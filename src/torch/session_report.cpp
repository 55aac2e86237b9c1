#include "spillway/torch/session_report.hpp"

#include <iomanip>
#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

double milliseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

}  // namespace

std::string SessionReport::to_text() const {
  std::ostringstream out;
  out << "spillway report, rank " << rank << ", " << device << ", " << steps << " steps ("
      << recorded_steps << " recorded)\n";
  out << "  saved on the device    without " << to_string(saved_peak_without) << ", with "
      << to_string(saved_peak_with) << "\n";
  if (device_peak > Bytes(0)) out << "  device peak            " << to_string(device_peak) << "\n";
  out << "  planned reduction      " << to_string(planned_reduction)
      << ", reached R = " << std::fixed << std::setprecision(2) << reduction_ratio << "\n";
  for (const auto& [action, totals] : actions) {
    out << "  " << std::left << std::setw(23) << action << totals.buffers << " buffers, "
        << to_string(totals.bytes) << "\n";
  }
  out << "  last step              out " << to_string(bytes_out) << ", back "
      << to_string(bytes_back) << ", used in place " << used_in_place << ", late reloads "
      << late_reloads << "\n";
  if (repeated_calls > 0) {
    out << "  recomputed             " << to_string(bytes_remade) << " by " << repeated_calls
        << " operators\n";
  }
  for (const std::string& each : demoted) out << "  not recomputed         " << each << "\n";
  if (stayed.buffers > 0) {
    out << "  backward at once       " << stayed.buffers << " buffers, " << to_string(stayed.bytes)
        << " not copied out\n";
  }
  if (waits.step > 0) {
    out << "  waited for copies      " << milliseconds(waits.release) << " ms to release, "
        << milliseconds(waits.reload) << " ms to reload, " << milliseconds(waits.in_place)
        << " ms for buffers used in place (step " << waits.step << ")\n";
  }
  out << "  host memory            " << to_string(host_peak) << " at most\n";
  if (fallbacks.empty()) out << "  fallbacks              none\n";
  for (const auto& [reason, count] : fallbacks) {
    out << "  fallback               " << count << " x " << reason << "\n";
  }
  for (const ScopeLine& line : scopes) {
    out << "    " << std::left << std::setw(24) << line.scope << std::setw(10) << line.action
        << line.buffers << " buffers, " << to_string(line.bytes) << "\n";
  }
  return out.str();
}

std::string SessionReport::to_json() const {
  nlohmann::ordered_json json;
  json["schema"] = "spillway.report/1";
  json["rank"] = rank;
  json["device"] = device;
  json["steps"] = steps;
  json["recorded_steps"] = recorded_steps;
  json["saved_peak_without"] = saved_peak_without.count();
  json["saved_peak_with"] = saved_peak_with.count();
  json["device_peak"] = device_peak.count();
  json["planned_reduction"] = planned_reduction.count();
  json["reduction_ratio"] = reduction_ratio;
  json["bytes_out"] = bytes_out.count();
  json["bytes_back"] = bytes_back.count();
  json["used_in_place"] = used_in_place;
  json["late_reloads"] = late_reloads;
  json["repeated_calls"] = repeated_calls;
  json["bytes_remade"] = bytes_remade.count();
  json["demoted"] = demoted;
  json["stayed"] = {{"buffers", stayed.buffers}, {"bytes", stayed.bytes.count()}};
  json["waits"] = {{"step", waits.step},
                   {"release_ns", waits.release.count()},
                   {"reload_ns", waits.reload.count()},
                   {"in_place_ns", waits.in_place.count()}};
  json["host_peak"] = host_peak.count();
  json["actions"] = nlohmann::ordered_json::object();
  for (const auto& [action, totals] : actions) {
    json["actions"][action] = {{"buffers", totals.buffers}, {"bytes", totals.bytes.count()}};
  }
  json["scopes"] = nlohmann::ordered_json::array();
  for (const ScopeLine& line : scopes) {
    json["scopes"].push_back({{"scope", line.scope},
                              {"action", line.action},
                              {"buffers", line.buffers},
                              {"bytes", line.bytes.count()}});
  }
  json["fallbacks"] = fallbacks;
  return json.dump(2);
}

std::ostream& operator<<(std::ostream& out, const SessionReport& report) {
  return out << report.to_text();
}

}  // namespace spillway
