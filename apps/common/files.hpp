/// Files that programs write.
#pragma once

#include <string>

namespace spillway::app {

/// Writes `text` and makes the folders on the way.
/// Errors: IoError with the path.
void write_file(const std::string& path, const std::string& text);

}  // namespace spillway::app
