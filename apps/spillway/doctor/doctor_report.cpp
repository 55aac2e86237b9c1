#include "doctor/doctor_report.hpp"

#include <array>

#include "util/renamed.hpp"
#include "util/text/text_table.hpp"
#include "util/text/wrapped.hpp"

namespace spillway::app {
namespace {

const char* word_of(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kNote:
      return "note";
    case CheckState::kProblem:
      return "problem";
  }
  return "";
}

std::vector<std::string> sentences(const DoctorReport& report, std::string Check::*which) {
  std::vector<std::string> found;
  for (const Check& check : report.checks) {
    if (!(check.*which).empty()) found.push_back(check.*which);
  }
  return found;
}

/// Of spillway.doctor/1. Remove one release after 0.1.
constexpr std::array<RenamedKey, 3> kRenamed = {
    {{"backing", "pinning"},                   // old name
     {"backed_bytes", "pinned_bytes"},         // old name
     {"plain_gb_per_s", "direct_gb_per_s"}}};  // old name

std::string bullets(const std::string& title, const std::vector<std::string>& lines) {
  constexpr std::size_t kColumns = 100;
  std::string text = "\n" + title + "\n";
  for (const std::string& line : lines) text += "  - " + wrapped(line, 4, kColumns) + "\n";
  return text;
}

}  // namespace

Json to_json(const DoctorReport& report) {
  Json json = {
      {"schema", "spillway.doctor/2"}, {"version", report.version}, {"device", report.device}};
  Json& checks = json["checks"];
  for (const Check& check : report.checks) {
    checks[check.id] = {{"label", check.label},   {"state", word_of(check.state)},
                        {"found", check.found},   {"works", check.works},
                        {"change", check.change}, {"values", check.values}};
  }
  json["works"] = sentences(report, &Check::works);
  json["change"] = sentences(report, &Check::change);
  add_old_names(json, kRenamed);
  return json;
}

std::string to_text(const DoctorReport& report) {
  TextTable table({{""}, {""}, {""}});
  for (const Check& check : report.checks) {
    table.add({word_of(check.state), check.label, check.found});
  }
  std::vector<std::string> change = sentences(report, &Check::change);
  if (change.empty()) change.emplace_back("Nothing.");
  return "spillway " + report.version + " doctor, device " + report.device + "\n\n" +
         table.text(2) + bullets("What works here", sentences(report, &Check::works)) +
         bullets("What to change", change);
}

}  // namespace spillway::app
