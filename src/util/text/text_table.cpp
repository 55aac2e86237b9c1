#include "util/text/text_table.hpp"

#include <algorithm>
#include <utility>

#include "spillway/core/columns.hpp"

namespace spillway::app {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(std::size_t indent) const {
  std::vector<std::string> titles;
  std::vector<std::size_t> right;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    if (columns_[i].align == Align::kRight) right.push_back(i);
  }
  std::vector<std::vector<std::string>> rows = rows_;
  const bool titled =
      std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); });
  if (titled) rows.insert(rows.begin(), titles);
  return in_columns(rows, right, indent);
}

std::string TextTable::markdown() const {
  std::string head = "|";
  std::string rule = "|";
  for (const Column& column : columns_) {
    head += " " + column.title + " |";
    rule += column.align == Align::kLeft ? " --- |" : " ---: |";
  }
  std::string text = head + '\n' + rule + '\n';
  for (const auto& row : rows_) {
    text += "|";
    for (const std::string& cell : row) text += " " + cell + " |";
    text += '\n';
  }
  return text;
}

}  // namespace spillway::app
