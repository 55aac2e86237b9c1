/// All figures of one run of a benchmark, in the forms they are kept in.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/figure.hpp"
#include "support/provenance.hpp"
#include "util/text_table.hpp"

namespace spillway::bench {

struct Report {
  std::string bench;     ///< "transfer".
  std::string question;  ///< What the benchmark answers, in one sentence.
  Provenance made;
  Json settings = Json::object();
  std::vector<Figure> figures;
  /// The same figures side by side, where that is easier to read. Not in JSON.
  std::optional<app::TextTable> side_by_side;
  std::vector<std::string> notes;  ///< What a reader must know to read the figures right.
  /// Writes what was found so far into the files that were asked for: for benchmarks of minutes to
  /// call after each row, so that one that is cut off leaves something. Set by run_program().
  std::function<void()> save;
};

[[nodiscard]] std::string to_text(const Report& report);
[[nodiscard]] std::string to_markdown(const Report& report);
/// Schema "spillway.bench/1".
[[nodiscard]] Json to_json(const Report& report);

}  // namespace spillway::bench
