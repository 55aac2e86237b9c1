/// What a long job is doing now: one line that is redrawn on a terminal, else a line for
/// each new text.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

namespace spillway::app {

class StatusLine {
 public:
  /// `terminal`: whether `out` is one.
  StatusLine(std::ostream& out, bool terminal, std::string title);
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  /// Takes the line away from a terminal.
  ~StatusLine();

  void show(const std::string& text);

 private:
  std::ostream& out_;
  bool terminal_;
  std::string title_;
  std::string last_;
  std::size_t width_ = 0;
};

}  // namespace spillway::app
