/// A new file that is durable on the disk once it is finished.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "util/digest.hpp"

namespace spillway::app {

struct FileStamp {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  ///< Digest of them.

  bool operator==(const FileStamp&) const = default;
};

/// Errors: IoError "[operation] cannot write <path>: <why>", from every function.
class DurableFile {
 public:
  /// Creates the file, or empties an existing one.
  DurableFile(std::string_view operation, std::filesystem::path path);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Waits until all of it is on the disk; nothing may be written afterwards.
  FileStamp finish();

 private:
  [[noreturn]] void fail(int error) const;

  std::string operation_;
  std::filesystem::path path_;
  int file_ = -1;
  Digest hash_;
  std::uint64_t size_ = 0;
};

/// Waits until the names in a folder are on the disk.
/// Errors: as DurableFile.
void sync_folder(std::string_view operation, const std::filesystem::path& folder);

}  // namespace spillway::app
