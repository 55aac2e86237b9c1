#include "util/text/progress.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace spillway::app {
namespace {

constexpr int kCells = 30;
constexpr int kLines = 5;  // Without a terminal, besides the first.

}  // namespace

Progress::Progress(std::ostream& out, bool terminal, std::string title, int total)
    : out_(out), terminal_(terminal), title_(std::move(title)), total_(total) {}

Progress::~Progress() {
  if (width_ > 0) out_ << '\n' << std::flush;
}

void Progress::update(int done, const std::string& note) {
  const std::string count = std::to_string(done) + "/" + std::to_string(total_);
  if (!terminal_) {
    const int stride = std::max(1, total_ / kLines);
    if (done == 1 || done == total_ || done % stride == 0) {
      out_ << title_ << ": step " << count << ", " << note << std::endl;
    }
    return;
  }
  const auto full = static_cast<std::size_t>(kCells * done / std::max(1, total_));
  std::string line = title_ + " [" + std::string(full, '#') +
                     std::string(static_cast<std::size_t>(kCells) - full, '.') + "] " + count +
                     "  " + note;
  const std::size_t length = line.size();
  if (length < width_) line.append(width_ - length, ' ');
  width_ = length;
  out_ << '\r' << line << std::flush;
}

bool errors_go_to_a_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace spillway::app
