#include "doctor/doctor_report.hpp"

#include <sstream>

#include "util/text_table.hpp"

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

/// Breaks a sentence into lines of at most 100 columns that begin with `indent` spaces; the first
/// line's are the caller's.
std::string wrapped(const std::string& sentence, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::istringstream words(sentence);
  std::string text;
  std::string word;
  std::size_t column = indent;
  while (words >> word) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      text += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      text += ' ';
      ++column;
    }
    text += word;
    column += word.size();
  }
  return text;
}

std::string bullets(const std::string& title, const std::vector<std::string>& lines) {
  std::string text = "\n" + title + "\n";
  for (const std::string& line : lines) text += "  - " + wrapped(line, 4) + "\n";
  return text;
}

}  // namespace

Json to_json(const DoctorReport& report) {
  Json json = {
      {"schema", "spillway.doctor/2"}, {"version", report.version}, {"device", report.device}};
  for (const Check& check : report.checks) {
    json["checks"][check.id] = {{"label", check.label},   {"state", word_of(check.state)},
                                {"found", check.found},   {"works", check.works},
                                {"change", check.change}, {"values", check.values}};
  }
  json["works"] = sentences(report, &Check::works);
  json["change"] = sentences(report, &Check::change);
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
