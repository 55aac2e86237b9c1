/// Checkpoints: one folder a step with weights and optimizer state by name, which does not depend
/// on how the parameters were spread over ranks. docs/train.md describes the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/durable_file.hpp"
#include "train/model/loss_scaler.hpp"
#include "train/model/named_tensor.hpp"

namespace spillway::app {

/// What a run knows besides tensors.
struct TrainingState {
  std::int64_t step = 0;     ///< Steps done.
  std::string config;        ///< TOML of the run that wrote it.
  std::uint64_t losses = 0;  ///< LossDigest::value() of the steps done.
  std::optional<LossScalerState> loss_scale;

  bool operator==(const TrainingState&) const = default;
};

/// Writes the checkpoint of one step, in three parts that the ranks agree on: begin() on one rank;
/// then write() on every rank; then complete() on one rank. Until that has returned, the
/// checkpoint has another name and is not found. Everything is on the disk then.
///
/// One run at a time writes to `folder`, which all ranks see.
/// Errors: IoError with the path, from every function.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path folder, std::int64_t step);

  /// Makes the folder to write to, and removes what interrupted runs have left. A checkpoint that
  /// one of them was about to replace gets its name back.
  void begin() const;
  /// This rank's tensors. A tensor that several ranks have is given by one of them.
  void write(int rank, const std::vector<NamedTensor>& weights,
             const std::vector<NamedTensor>& optimizer) const;
  /// Puts together what `ranks` ranks wrote, and gives it its name; replaces one of that name.
  /// Wherever it is interrupted, latest_checkpoint() finds the old or the new one, complete.
  /// Errors: also IoError if the part of a rank is missing, InvalidArgument if two ranks wrote
  /// tensors of one name.
  void complete(int ranks, const TrainingState& state) const;

  /// What it is called when complete: folder/step-000100.
  [[nodiscard]] std::filesystem::path path() const;

 private:
  [[nodiscard]] std::filesystem::path unfinished() const;

  std::filesystem::path folder_;
  std::int64_t step_;
};

/// The complete checkpoint with the highest step in a folder; nothing if there is none. What was
/// not completed does not count. One that an interrupted run was about to replace is found under
/// the name that it had then, step-000100.replaced. Changes nothing, so all ranks may ask.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& folder);

/// A checkpoint to read. Errors: IoError that names the damaged or missing file.
class Checkpoint {
 public:
  /// Reads and checks what the checkpoint says of itself.
  explicit Checkpoint(std::filesystem::path path);

  [[nodiscard]] const TrainingState& state() const noexcept { return state_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::vector<std::string> names() const;

  /// The tensors of these names, in this order, on the CPU. All files that hold one of them are
  /// read and checked before the first is returned. They lie in the files' own memory: copy, do not
  /// write.
  /// Errors: also IoError if the checkpoint has no such tensor.
  [[nodiscard]] std::vector<NamedTensor> read(const std::vector<std::string>& names) const;
  /// Reads and checks every file.
  void verify() const;

 private:
  std::filesystem::path path_;
  TrainingState state_;
  std::map<std::string, FileStamp> files_;
  std::map<std::string, std::string> file_of_;  // By name of a tensor.
};

}  // namespace spillway::app
