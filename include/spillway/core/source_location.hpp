/// Where in a file something was written.
#pragma once

#include <string>

namespace spillway {

struct SourceLocation {
  std::string file;
  int line = 0;
  int column = 0;

  bool operator==(const SourceLocation&) const = default;
};

/// "memory.toml:14:1"; only the file if there is no line, and empty if there is no file.
[[nodiscard]] std::string to_string(const SourceLocation& location);

}  // namespace spillway
