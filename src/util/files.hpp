/// Whole files, read and written.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace spillway {

/// Errors: IoError "[operation] cannot read <path>: <why>".
[[nodiscard]] std::string read_file(std::string_view operation, const std::filesystem::path& path);

/// Readers of `path` see the old file or the whole new one, never a part.
/// Errors: IoError "[operation] cannot write <path>: <why>"; the old file is as it was then.
void write_file(std::string_view operation, const std::filesystem::path& path,
                std::string_view text);

/// Writes the output of a program to `path`, which may be a pipe or a device, and creates missing
/// folders.
/// Errors: IoError with the path.
void write_output(const std::filesystem::path& path, std::string_view text);

}  // namespace spillway
