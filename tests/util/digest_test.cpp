#include "util/digest.hpp"

#include <set>

#include <gtest/gtest.h>

namespace spillway {
namespace {

std::uint64_t hash_of(std::string_view text) {
  Digest hash;
  hash.add(text);
  return hash.value();
}

// The published values of XXH64 with seed 0.
TEST(Digest, IsXxh64) {
  EXPECT_EQ(hash_of(""), 0xef46db3751d8e999U);
  EXPECT_EQ(hash_of("a"), 0xd24ec4f1a98c6e5bU);
  EXPECT_EQ(hash_of("abc"), 0x44bc2cf5ad770999U);
  EXPECT_EQ(hash_of("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1U);
}

TEST(Digest, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 37);
  for (std::size_t piece = 1; piece < 70; ++piece) {
    Digest hash;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      hash.add(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(hash.value(), hash_of(text)) << piece;
  }
}

TEST(Digest, ChangesWithEveryBit) {
  std::string text(100, 'x');
  std::set<std::uint64_t> seen = {hash_of(text)};
  for (std::size_t i = 0; i < text.size() * 8; ++i) {
    text[i / 8] = static_cast<char>(text[i / 8] ^ (1 << (i % 8)));
    EXPECT_TRUE(seen.insert(hash_of(text)).second);
    text[i / 8] = 'x';
  }
}

TEST(Digest, MayGrowAfterItsValueWasAsked) {
  Digest hash;
  hash.add("ab");
  (void)hash.value();
  hash.add("c");
  EXPECT_EQ(hash.value(), hash_of("abc"));
}

TEST(Digest, TellsFieldsApart) {
  const auto of_fields = [](std::string_view first, std::string_view next) {
    Digest digest;
    digest.add_field(first);
    digest.add_field(next);
    return digest.value();
  };
  EXPECT_EQ(of_fields("ab", "c"), of_fields("ab", "c"));
  EXPECT_NE(of_fields("ab", "c"), of_fields("a", "bc"));
  EXPECT_NE(of_fields("abc", ""), of_fields("", "abc"));
}

TEST(Digest, OfNumbersIsThatOfTheirBytes) {
  Digest digest;
  digest.add(std::uint64_t{1});
  digest.add(std::uint64_t{2});
  EXPECT_EQ(digest_of({1, 2}), digest.value());
  EXPECT_NE(digest_of({1, 2}), digest_of({2, 1}));
}

TEST(DigestText, HasSixteenDigitsAndIsReadAgain) {
  EXPECT_EQ(digest_text(0x0123456789abcdefU), "0123456789abcdef");
  EXPECT_EQ(parse_digest(digest_text(77)), 77U);
  for (const char* wrong :
       {"", "77", "0123456789abcdeg", "0123456789abcdef0", "-123456789abcdef"}) {
    EXPECT_FALSE(parse_digest(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace spillway
