/// What a checkpoint says of itself: its file index.json. Internal.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/durable_file.hpp"

namespace spillway::app {

inline constexpr const char* kCheckpointSchema = "spillway.checkpoint/1";

/// A file of a checkpoint and what is in it.
struct CheckpointFile {
  FileStamp stamp;
  std::vector<std::string> tensors;

  bool operator==(const CheckpointFile&) const = default;
};

/// By name within the checkpoint's folder.
using CheckpointFiles = std::map<std::string, CheckpointFile>;

struct CheckpointIndex {
  TrainingState state;
  CheckpointFiles files;

  bool operator==(const CheckpointIndex&) const = default;
};

/// Both write the file and wait until it is on the disk. The text holds a hash of itself.
/// Errors: IoError.
void write_index(const std::filesystem::path& path, const CheckpointIndex& index);
/// Errors: IoError that names the file if it cannot be read or is damaged.
[[nodiscard]] CheckpointIndex read_index(const std::filesystem::path& path);

}  // namespace spillway::app
