/// Tokens in a file: a text, whose bytes they are, or a `.bin` file of llm.c or nanoGPT.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "train/data/mapped_file.hpp"

namespace spillway::app {

class TokenFile {
 public:
  /// `format`: "text", "bin" (with the header of llm.c or, without one, of nanoGPT) or "auto",
  /// which is bin if the file's name ends in .bin.
  /// Errors: IoError if the file cannot be read; ConfigError for a bin file that holds no 16-bit
  /// tokens, or not as many as its header says.
  TokenFile(const std::filesystem::path& path, const std::string& format);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// "text", "llm.c tokens" or "nanoGPT tokens"
  [[nodiscard]] const char* kind() const noexcept { return kind_; }

  /// The tokens from `first` on. Threads: any number at once.
  /// Precondition: first + tokens.size() <= size().
  /// Errors: ConfigError if one is not below `vocabulary`, with its position.
  void read(std::uint64_t first, std::int64_t vocabulary, std::span<std::int64_t> tokens) const;

 private:
  void read_header();

  std::string path_;
  MappedFile file_;
  const char* kind_ = "text";
  std::uint64_t begin_ = 0;  // Bytes before the first token.
  std::uint64_t width_ = 1;  // Bytes of a token.
  std::uint64_t size_ = 0;
};

}  // namespace spillway::app
