#include "train/data/token_file.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using spillway::testing::TemporaryFolder;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> values(256);
  values[0] = magic;
  values[1] = version;
  values[2] = count;
  return bytes_of(values);
}

std::vector<std::int64_t> all_of(const TokenFile& file) {
  std::vector<std::int64_t> tokens(file.size());
  file.read(0, 1 << 16, tokens);
  return tokens;
}

std::string refused(const std::filesystem::path& path, const std::string& format = "auto") {
  return error_text<ConfigError>([&] { const TokenFile file(path, format); });
}

TEST(TokenFile, TakesTheBytesOfATextAsTokens) {
  const TemporaryFolder folder;
  const TokenFile file(folder.write("a.txt", "ab\xff"), "auto");
  EXPECT_STREQ(file.kind(), "text");
  EXPECT_EQ(all_of(file), (std::vector<std::int64_t>{'a', 'b', 255}));
}

TEST(TokenFile, TakesTokensOfNanoGpt) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", bytes_of<std::uint16_t>({7, 65535, 0}));
  EXPECT_STREQ(TokenFile(path, "auto").kind(), "nanoGPT tokens");
  EXPECT_EQ(all_of(TokenFile(path, "auto")), (std::vector<std::int64_t>{7, 65535, 0}));
  EXPECT_EQ(TokenFile(path, "text").size(), 6U);
  EXPECT_EQ(all_of(TokenFile(folder.write("b", bytes_of<std::uint16_t>({7})), "bin")),
            (std::vector<std::int64_t>{7}));
}

TEST(TokenFile, TakesTokensOfLlmC) {
  const TemporaryFolder folder;
  const TokenFile file(
      folder.write("a.bin", header(20240520, 1, 3) + bytes_of<std::uint16_t>({50256, 1, 2})),
      "auto");
  EXPECT_STREQ(file.kind(), "llm.c tokens");
  EXPECT_EQ(all_of(file), (std::vector<std::int64_t>{50256, 1, 2}));
  std::vector<std::int64_t> two(2);
  file.read(1, 3, two);
  EXPECT_EQ(two, (std::vector<std::int64_t>{1, 2}));
}

TEST(TokenFile, NamesOtherFilesOfLlmC) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", header(20240801, 7, 0));
  EXPECT_EQ(refused(path), "[data] " + path.string() +
                               ": 16-bit tokens wanted, found 32-bit tokens of Llama 3 of llm.c "
                               "(magic 20240801)");
  folder.write("a.bin", header(20240326, 3, 0));
  EXPECT_EQ(refused(path), "[data] " + path.string() +
                               ": 16-bit tokens wanted, found weights of GPT-2 of llm.c (magic "
                               "20240326)");
  folder.write("a.bin", header(20240520, 2, 0));
  EXPECT_EQ(refused(path),
            "[data] " + path.string() + ": llm.c's tokens of version 1 wanted, found version 2");
}

TEST(TokenFile, RefusesTruncatedFiles) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("a.bin", header(20240520, 1, 4) + bytes_of<std::uint16_t>({1, 2, 3}));
  EXPECT_EQ(refused(path), "[data] " + path.string() +
                               ": its header says 4 tokens, which are 1032 bytes with it; found "
                               "1030");
  folder.write("a.bin", header(20240520, 1, 4).substr(0, 100));
  EXPECT_EQ(refused(path),
            "[data] " + path.string() + ": it ends within the header of llm.c's tokens");
  folder.write("a.bin", "abc");
  EXPECT_EQ(refused(path), "[data] " + path.string() +
                               ": 16-bit tokens wanted, found 3 bytes, which is odd; if it is a "
                               "text, set data.format to text");
}

TEST(TokenFile, NamesThePositionOfATokenOutsideTheVocabulary) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("a.bin", header(20240520, 1, 3) + bytes_of<std::uint16_t>({1, 2, 500}));
  const TokenFile file(path, "auto");
  std::vector<std::int64_t> tokens(2);
  EXPECT_EQ(error_text<ConfigError>([&] { file.read(1, 256, tokens); }),
            "[data] " + path.string() +
                ": token 500 at position 2 (byte 1028) is outside the vocabulary of 256; set "
                "model.vocabulary to at least 501");
}

TEST(TokenFile, SaysWhyAFileCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_text<IoError>([&] { const TokenFile file("/nowhere/a.txt", "auto"); }),
            "[data] cannot read /nowhere/a.txt: No such file or directory");
  EXPECT_EQ(error_text<IoError>([&] { const TokenFile file(folder.path(), "text"); }),
            "[data] cannot read " + folder.path().string() + ": Is a directory");
  EXPECT_EQ(TokenFile(folder.write("empty.txt", ""), "auto").size(), 0U);
}

}  // namespace
}  // namespace spillway::app
