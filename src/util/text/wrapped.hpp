/// A sentence broken into lines.
#pragma once

#include <cstddef>
#include <string>

namespace spillway::app {

/// Lines of at most `columns` columns that begin with `indent` spaces; those of the first line are
/// the caller's. Words are single spaces apart; a longer one stands on a line of its own.
[[nodiscard]] std::string wrapped(const std::string& sentence, std::size_t indent,
                                  std::size_t columns);

}  // namespace spillway::app
