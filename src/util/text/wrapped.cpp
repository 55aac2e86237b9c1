#include "util/text/wrapped.hpp"

#include <sstream>

namespace spillway::app {

std::string wrapped(const std::string& sentence, std::size_t indent, std::size_t columns) {
  std::istringstream words(sentence);
  std::string text;
  std::string word;
  std::size_t column = indent;
  while (words >> word) {
    if (column > indent && column + 1 + word.size() > columns) {
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

}  // namespace spillway::app
