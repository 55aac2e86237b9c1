/// metrics.jsonl: one JSON object a line, the figures of a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

namespace spillway::app {

/// Threads: one at a time.
class MetricsFile {
 public:
  /// Creates the file, or empties an existing one. With `resume_after`, appends to the existing
  /// one: lines of later steps, and an incomplete one, are removed.
  /// Errors: IoError if it cannot be written.
  explicit MetricsFile(std::filesystem::path path,
                       std::optional<std::int64_t> resume_after = std::nullopt);

  /// Adds a line and hands it to the system at once. `figures` has the key "step".
  /// Numbers that are not finite become null, which is all that JSON has for them.
  /// Errors: IoError if it cannot be written.
  void write(const nlohmann::ordered_json& figures);

 private:
  void check() const;

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace spillway::app
