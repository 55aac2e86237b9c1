/// All figures of one run of a benchmark, as text, Markdown and JSON.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/figure.hpp"
#include "support/provenance.hpp"
#include "util/text/text_table.hpp"

namespace spillway::bench {

struct Report {
  std::string bench;     ///< "transfer".
  std::string question;  ///< What the benchmark answers, in one sentence.
  Provenance made;
  Json settings = Json::object();
  std::vector<Figure> figures;
  /// The main figures as a table with one line per row. Not in JSON.
  std::optional<app::TextTable> side_by_side;
  std::vector<std::string> notes;  ///< What a reader must know to interpret the figures.
  /// Writes the results so far to the output files. Long benchmarks call it after each row, so that
  /// an interrupted run has its finished rows. Set by run_program().
  std::function<void()> save;
};

[[nodiscard]] std::string to_text(const Report& report);
[[nodiscard]] std::string to_markdown(const Report& report);
/// Schema "spillway.bench/1".
[[nodiscard]] Json to_json(const Report& report);

}  // namespace spillway::bench
