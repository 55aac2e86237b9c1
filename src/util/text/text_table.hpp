/// Rows of words, printed in columns: for a terminal or as Markdown.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace spillway::app {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit TextTable(std::vector<Column> columns);

  /// Missing cells at the end are empty. Precondition: not more cells than columns.
  void add(std::vector<std::string> cells);

  /// Columns two spaces apart, each line indented; titles are left out if all are empty.
  [[nodiscard]] std::string text(std::size_t indent = 0) const;
  [[nodiscard]] std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway::app
