/// How far a long job is: a bar that is redrawn on a terminal, else a few lines.
#pragma once

#include <ostream>
#include <string>

namespace spillway::app {

class Progress {
 public:
  /// `terminal`: whether `out` is one. `total`: how many steps there will be.
  Progress(std::ostream& out, bool terminal, std::string title, int total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends the bar's line, also when the job ended early.
  ~Progress();

  /// `done` steps are done; `note`: what to say of the last one.
  void update(int done, const std::string& note);

 private:
  std::ostream& out_;
  bool terminal_;
  std::string title_;
  int total_;
  std::size_t width_ = 0;  // Of the line on the terminal.
};

/// Whether the standard error stream is a terminal.
[[nodiscard]] bool errors_go_to_a_terminal();

}  // namespace spillway::app
