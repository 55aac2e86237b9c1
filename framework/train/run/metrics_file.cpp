#include "train/run/metrics_file.hpp"

#include "spillway/core/error.hpp"
#include "train/checkpoint/durable_file.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

/// The lines of the file that are whole and of steps up to `last`.
std::string lines_until(const std::filesystem::path& path, std::int64_t last) {
  std::ifstream file(path, std::ios::binary);
  std::string kept;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // The last line, too, ends with a new line.
    const Json figures = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool whole =
        figures.is_object() && figures.contains("step") && figures["step"].is_number_integer();
    if (whole && figures["step"].get<std::int64_t>() <= last) kept += line + "\n";
  }
  return kept;
}

void replace(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path temporary = path;
  temporary += ".new";
  DurableFile file("metrics", temporary);
  file.write(text);
  (void)file.finish();
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) throw IoError("metrics", "cannot write " + path.string() + ": " + error.message());
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, std::optional<std::int64_t> resume_after)
    : path_(std::move(path)) {
  std::error_code ignored;  // What matters is whether the file can be written.
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), ignored);
  if (resume_after && std::filesystem::exists(path_, ignored)) {
    replace(path_, lines_until(path_, *resume_after));
  }
  file_.open(path_, std::ios::binary | (resume_after ? std::ios::app : std::ios::trunc));
  check();
}

void MetricsFile::write(const Json& figures) {
  file_ << figures.dump() << std::endl;  // Flushed, so that the file may be watched.
  check();
}

void MetricsFile::check() const {
  if (!file_) {
    throw IoError("metrics", "cannot write " + path_.string() +
                                 "; give a folder in train.out that may be written to");
  }
}

}  // namespace spillway::app
