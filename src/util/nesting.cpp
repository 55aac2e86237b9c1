#include "util/nesting.hpp"

#include <algorithm>
#include <cstddef>

namespace spillway {
namespace {

/// Goes through a text, counting lines.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] int line() const { return line_; }

  char next() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  void skip_line() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  /// Behind its opening quote. `escapes`: a backslash takes the next character with it.
  void skip_string(char quote, bool escapes) {
    while (!at_end() && text_[at_] != '\n') {
      const char c = next();
      if (c == quote) return;
      if (c == '\\' && escapes && !at_end()) (void)next();
    }
  }
  /// TOML's: three quotes open and close a text of several lines, which may end in two more.
  void skip_toml_string(char quote) {
    if (!take_quotes(quote, 2)) return skip_string(quote, quote == '"');
    while (!at_end()) {
      const char c = next();
      if (c == '\\' && quote == '"' && !at_end()) {
        (void)next();
      } else if (c == quote && take_quotes(quote, 2)) {
        for (int more = 0; more < 2 && take_quotes(quote, 1); ++more) continue;
        return;
      }
    }
  }

 private:
  bool take_quotes(char quote, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (at_ + i >= text_.size() || text_[at_ + i] != quote) return false;
    }
    at_ += count;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::optional<int> line_of_deep_json(std::string_view text) {
  Scanner scanner(text);
  int depth = 0;
  while (!scanner.at_end()) {
    const char c = scanner.next();
    if (c == '"') scanner.skip_string('"', /*escapes=*/true);
    if ((c == '[' || c == '{') && ++depth > kMostJsonNesting) return scanner.line();
    if (c == ']' || c == '}') --depth;
  }
  return std::nullopt;
}

std::optional<int> line_of_deep_toml(std::string_view text) {
  Scanner scanner(text);
  int depth = 0;
  int parts = 1;  // Of the key that may be read now.
  while (!scanner.at_end()) {
    const char c = scanner.next();
    if (c == '#') {
      scanner.skip_line();
    } else if (c == '"' || c == '\'') {
      scanner.skip_toml_string(c);
    } else if (c == '.') {
      if (++parts > kMostTomlNesting) return scanner.line();
    } else if (c == '[' || c == '{') {
      if (++depth > kMostTomlNesting) return scanner.line();
      parts = 1;
    } else if (c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
      parts = 1;
    } else if (c == '=' || c == ',' || c == '\n') {
      parts = 1;
    }
  }
  return std::nullopt;
}

}  // namespace spillway
