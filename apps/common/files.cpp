#include "common/files.hpp"

#include <filesystem>
#include <fstream>

#include "spillway/core/error.hpp"

namespace spillway::app {

void write_file(const std::string& path, const std::string& text) {
  const std::filesystem::path file_path(path);
  std::error_code ignored;  // What matters is whether the file can be written.
  if (file_path.has_parent_path()) {
    std::filesystem::create_directories(file_path.parent_path(), ignored);
  }
  std::ofstream file(file_path);
  file << text;
  file.close();
  if (!file) {
    throw IoError("write", "cannot write " + path +
                               "; give a path in a folder that exists and may be written to");
  }
}

}  // namespace spillway::app
