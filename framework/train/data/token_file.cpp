#include "train/data/token_file.hpp"

#include <array>
#include <cstring>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

constexpr std::int32_t kTokens = 20240520;
constexpr std::uint64_t kHeaderBytes = 256 * sizeof(std::int32_t);

struct OtherFile {
  std::int32_t magic;
  const char* what;
};

/// What llm.c also writes to files that end in .bin.
constexpr std::array<OtherFile, 6> kOthers = {{
    {20240326, "weights of GPT-2"},
    {20240327, "the state of GPT-2 to compare with"},
    {20240328, "a tokenizer"},
    {20240522, "questions for an evaluation"},
    {20240801, "32-bit tokens of Llama 3"},
    {20240803, "weights of Llama 3"},
}};

template <typename T>
T value_at(std::span<const std::byte> bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw ConfigError("data", path + ": " + why);
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path, const std::string& format)
    : path_(path.string()), file_("data", path), size_(file_.bytes().size()) {
  if (format == "bin" || (format == "auto" && path.extension() == ".bin")) read_header();
}

void TokenFile::read_header() {
  const std::span<const std::byte> bytes = file_.bytes();
  width_ = sizeof(std::uint16_t);
  if (bytes.size() % width_ != 0) {
    refuse(path_, "16-bit tokens wanted, found " + std::to_string(bytes.size()) +
                      " bytes, which is odd; if it is a text, set data.format to text");
  }
  size_ = bytes.size() / width_;
  kind_ = "nanoGPT tokens";
  if (bytes.size() < sizeof(std::int32_t)) return;
  const auto magic = value_at<std::int32_t>(bytes, 0);
  for (const OtherFile& other : kOthers) {
    if (magic == other.magic) {
      refuse(path_, "16-bit tokens wanted, found " + std::string(other.what) + " of llm.c (magic " +
                        std::to_string(magic) + ")");
    }
  }
  if (magic != kTokens) return;
  if (bytes.size() < kHeaderBytes) refuse(path_, "it ends within the header of llm.c's tokens");
  const auto version = value_at<std::int32_t>(bytes, 4);
  if (version != 1) {
    refuse(path_, "llm.c's tokens of version 1 wanted, found version " + std::to_string(version));
  }
  const auto count = value_at<std::int32_t>(bytes, 8);
  size_ = static_cast<std::uint32_t>(count);
  const std::uint64_t wanted = kHeaderBytes + size_ * width_;
  if (bytes.size() != wanted) {
    refuse(path_, "its header says " + std::to_string(size_) + " tokens, which are " +
                      std::to_string(wanted) + " bytes with it; found " +
                      std::to_string(bytes.size()));
  }
  kind_ = "llm.c tokens";
  begin_ = kHeaderBytes;
}

void TokenFile::read(std::uint64_t first, std::int64_t vocabulary,
                     std::span<std::int64_t> tokens) const {
  const std::span<const std::byte> bytes = file_.bytes();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint64_t at = begin_ + (first + i) * width_;
    tokens[i] =
        width_ == 1 ? value_at<std::uint8_t>(bytes, at) : value_at<std::uint16_t>(bytes, at);
    if (tokens[i] >= vocabulary) {
      refuse(path_, "token " + std::to_string(tokens[i]) + " at position " +
                        std::to_string(first + i) + " (byte " + std::to_string(at) +
                        ") is outside the vocabulary of " + std::to_string(vocabulary) +
                        "; set model.vocabulary to at least " + std::to_string(tokens[i] + 1));
    }
  }
}

}  // namespace spillway::app
