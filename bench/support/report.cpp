#include "support/report.hpp"

namespace spillway::bench {
namespace {

app::TextTable table_of(const Report& report) {
  using Align = app::TextTable::Align;
  app::TextTable table({{"figure"},
                        {"wanted", Align::kRight},
                        {"measured", Align::kRight},
                        {"min..max", Align::kRight},
                        {"verdict"},
                        {"details"}});
  for (const Figure& figure : report.figures) {
    std::string beside;
    for (const Value& value : figure.beside) {
      beside += (beside.empty() ? "" : ", ") + value.name + " " + text_of(value);
    }
    table.add({figure.found.name, figure.wanted ? text_of(*figure.wanted, figure.found) : "",
               text_of(figure.found), spread_text(figure.found), verdict(figure), beside});
  }
  return table;
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text = report.question + "\n" + hardware_text(report.made) + "\n\n";
  if (report.side_by_side) text += report.side_by_side->text() + "\n";
  text += table_of(report).text() + "\n";
  for (const std::string& note : report.notes) text += note + "\n";
  return text;
}

std::string to_markdown(const Report& report) {
  std::string text = "# bench/" + report.bench + "\n\n" + report.question + "\n\n";
  text += "- hardware: " + hardware_text(report.made) + "\n";
  text += "- device: " + report.made.device + ", " + report.made.system + "\n";
  text += "- command: `" + report.made.command + "`\n";
  text += "- commit: " + report.made.commit + ", " + report.made.date + "\n\n";
  if (report.side_by_side) text += report.side_by_side->markdown() + "\n";
  text += table_of(report).markdown() + "\n";
  for (const std::string& note : report.notes) text += note + "\n";
  return text;
}

Json to_json(const Report& report) {
  Json json = {
      {"schema", "spillway.bench/1"}, {"bench", report.bench}, {"question", report.question}};
  json.update(to_json(report.made));
  json["settings"] = report.settings;
  json["figures"] = Json::array();
  for (const Figure& figure : report.figures) json["figures"].push_back(to_json(figure));
  json["notes"] = report.notes;
  return json;
}

}  // namespace spillway::bench
