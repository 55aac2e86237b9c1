#include "train/checkpoint/safetensors.hpp"

#include <cstring>
#include <fstream>
#include <sstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using spillway::testing::TemporaryFolder;
using testing::text_of;

/// A file with that header and `data` bytes behind it.
std::string file_with(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header + std::string(data, 'x');
}

TEST(Safetensors, GiveEveryTypeBackToTheBit) {
  const TemporaryFolder folder;
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                     at::kInt, at::kShort, at::kChar, at::kByte}) {
    tensors.push_back({c10::toString(dtype), at::arange(6, dtype).view({2, 3})});
  }
  tensors.push_back({"bool", at::full({3}, true, at::kBool)});
  tensors.push_back({"scalar", at::full({}, 7, at::kLong)});
  tensors.push_back({"empty", at::zeros({0, 4})});
  tensors.push_back({"transposed", at::arange(6, at::kFloat).view({2, 3}).t()});
  const FileStamp stamp = write_safetensors(folder.path() / "a.safetensors", tensors);
  const SafetensorsFile file(folder.path() / "a.safetensors");
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const NamedTensor& each : tensors) {
    const at::Tensor found = file.tensor(each.name);
    EXPECT_EQ(found.scalar_type(), each.tensor.scalar_type());
    EXPECT_TRUE(at::equal(found, each.tensor)) << each.name;
  }
  EXPECT_EQ(file.stamp(), stamp);
  EXPECT_FALSE(file.has("other"));
}

// The format itself, byte by byte.
TEST(Safetensors, AreWrittenAsTheFormatSays) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a", {{"w", at::full({2}, 1, at::kByte)}});
  EXPECT_EQ(text_of(folder.path() / "a"),
            file_with(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   )", 0) +
                std::string("\1\1"));
}

TEST(Safetensors, OfOthersMayHaveMetadata) {
  const TemporaryFolder folder;
  const SafetensorsFile file(
      folder.write("a", file_with(R"({"__metadata__":{"format":"pt"},)"
                                  R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                  2)));
  EXPECT_EQ(file.names(), std::vector<std::string>{"w"});
  EXPECT_EQ(file.tensor("w").item<int>(), 'x');
}

TEST(Safetensors, KeepTheirBytesAsLongAsATensorIsThere) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a", {{"w", at::arange(4, at::kFloat)}});
  const at::Tensor kept = SafetensorsFile(folder.path() / "a").tensor("w");
  EXPECT_TRUE(at::equal(kept, at::arange(4, at::kFloat)));
}

TEST(Safetensors, WithAHeaderThatCannotBeAreRefusedByName) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text) {
    const auto path = folder.write("a", text);
    return error_text<IoError>([&] { const SafetensorsFile file(path); });
  };
  const std::string start = "[checkpoint] " + (folder.path() / "a").string() + " is damaged: ";
  EXPECT_EQ(refused("abc"), start + "it has no header");
  EXPECT_EQ(refused(file_with("{}", 0).substr(0, 9)), start + "it ends within its header");
  EXPECT_EQ(refused(file_with("[]", 0)), start + "its header is no JSON object");
  EXPECT_EQ(refused(file_with("{", 0)), start + "its header is no JSON object");
  for (const char* entry :
       {R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,9]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
        R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,4]})",
        R"({"dtype":"F32","data_offsets":[0,4]})", R"("w")"}) {
    EXPECT_EQ(refused(file_with("{\"w\":" + std::string(entry) + "}", 8)),
              start + "its header does not say what w is and where");
  }
}

TEST(Safetensors, AreNotWrittenWithANameTwiceOrATypeWithoutAWord) {
  const TemporaryFolder folder;
  const at::Tensor one = at::zeros({1});
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              write_safetensors(folder.path() / "a", {{"w", one}, {"w", one}});
            }),
            "[checkpoint] w is there twice");
  EXPECT_THAT(error_text<InvalidArgument>([&] {
                write_safetensors(folder.path() / "a", {{"w", one.to(at::kComplexFloat)}});
              }),
              ::testing::HasSubstr("which safetensors does not have"));
  EXPECT_THAT(error_text<IoError>([&] {
                write_safetensors("/nowhere/a", {{"w", one}});
              }),
              ::testing::HasSubstr("[checkpoint] cannot write /nowhere/a: No such file"));
}

}  // namespace
}  // namespace spillway::app
