/// A file's bytes as memory, read by the system when they are touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace spillway::app {

/// Lifetime: the bytes are there as long as it is; moving keeps them where they are. The file must
/// not become shorter meanwhile.
class MappedFile {
 public:
  /// Errors: IoError "[operation] cannot read <path>: <why>".
  MappedFile(std::string_view operation, const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace spillway::app
