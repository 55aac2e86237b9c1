#include "util/text/status_line.hpp"

#include <algorithm>
#include <utility>

namespace spillway::app {

StatusLine::StatusLine(std::ostream& out, bool terminal, std::string title)
    : out_(out), terminal_(terminal), title_(std::move(title)) {}

StatusLine::~StatusLine() {
  if (width_ > 0) out_ << '\r' << std::string(width_, ' ') << '\r' << std::flush;
}

void StatusLine::show(const std::string& text) {
  if (text == last_) return;
  last_ = text;
  const std::string line = title_ + ": " + text;
  if (!terminal_) {
    out_ << line << std::endl;
    return;
  }
  out_ << '\r' << line << std::string(width_ > line.size() ? width_ - line.size() : 0, ' ')
       << std::flush;
  width_ = std::max(width_, line.size());
}

}  // namespace spillway::app
