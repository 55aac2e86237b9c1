/// What the doctor found, as a value, and its two forms: text for people, JSON for scripts.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace spillway::app {

using Json = nlohmann::ordered_json;

/// kNote: works, but could be better.
enum class CheckState { kOk, kNote, kProblem };

struct Check {
  std::string id;     ///< Its name in JSON; changes only with the schema.
  std::string label;  ///< Its name for people.
  CheckState state = CheckState::kOk;
  std::string found;
  std::string works;   ///< One sentence on what will work here; may be empty.
  std::string change;  ///< One sentence on what to change; empty if nothing.
  Json values = Json::object();
};

struct DoctorReport {
  std::string version;
  std::string device;
  std::vector<Check> checks;
};

/// The result of `probe`; if it throws, a check that says so.
template <typename F>
[[nodiscard]] Check guarded(std::string id, std::string label, F&& probe) {
  Check check;
  check.id = std::move(id);
  check.label = std::move(label);
  try {
    probe(check);
  } catch (const std::exception& error) {
    check.state = CheckState::kProblem;
    check.found = std::string("could not be found out: ") + error.what();
    check.works.clear();
    check.change = "Repair the check \"" + check.label + "\"; its line says what went wrong.";
  }
  return check;
}

/// Schema "spillway.doctor/2": version, device, checks (id -> label, state, found, works, change,
/// values), and all sentences once more as the lists `works` and `change`. For one release it also
/// has what schema 1 called otherwise under the old names, which `renamed` lists (old -> new).
[[nodiscard]] Json to_json(const DoctorReport& report);

[[nodiscard]] std::string to_text(const DoctorReport& report);

}  // namespace spillway::app
