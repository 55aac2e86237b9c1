#include "common/text_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace spillway::app {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].title.size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  return widths;
}

std::string TextTable::line(const std::vector<std::string>& cells,
                            const std::vector<std::size_t>& widths, std::size_t indent) const {
  std::string line(indent, ' ');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - cells[i].size(), ' ');
    if (i > 0) line += "  ";
    line += columns_[i].align == Align::kLeft ? cells[i] + padding : padding + cells[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string TextTable::text(std::size_t indent) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const std::vector<std::size_t> wide = widths();
  std::string text;
  const bool titled =
      std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); });
  if (titled) text += line(titles, wide, indent);
  for (const auto& row : rows_) text += line(row, wide, indent);
  return text;
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

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace spillway::app
