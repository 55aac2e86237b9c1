#include "train/checkpoint/safetensors.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>

#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "spillway/core/error.hpp"
#include "util/nesting.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

struct TypeWord {
  at::ScalarType dtype;
  const char* word;
};

constexpr std::array<TypeWord, 10> kTypes = {{{at::kDouble, "F64"},
                                              {at::kFloat, "F32"},
                                              {at::kHalf, "F16"},
                                              {at::kBFloat16, "BF16"},
                                              {at::kLong, "I64"},
                                              {at::kInt, "I32"},
                                              {at::kShort, "I16"},
                                              {at::kChar, "I8"},
                                              {at::kByte, "U8"},
                                              {at::kBool, "BOOL"}}};

const char* word_of(const NamedTensor& tensor) {
  for (const TypeWord& each : kTypes) {
    if (each.dtype == tensor.tensor.scalar_type()) return each.word;
  }
  throw InvalidArgument("checkpoint", tensor.name + " has the type " +
                                          c10::toString(tensor.tensor.scalar_type()) +
                                          ", which safetensors does not have");
}

/// Padded, so that the tensors begin at a multiple of 8.
std::string header_of(const std::vector<NamedTensor>& tensors) {
  Json header = Json::object();
  std::size_t at = 0;
  for (const NamedTensor& each : tensors) {
    if (header.contains(each.name)) {
      throw InvalidArgument("checkpoint", each.name + " is there twice");
    }
    const std::size_t end = at + each.tensor.nbytes();
    header[each.name] = {{"dtype", word_of(each)},
                         {"shape", each.tensor.sizes().vec()},
                         {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw IoError("checkpoint", path + " is damaged: " + why);
}

/// How many values the shape has; nothing if more than `most`.
std::optional<std::uint64_t> count_of(const std::vector<std::int64_t>& shape, std::uint64_t most) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || (size > 0 && count > most / static_cast<std::uint64_t>(size))) {
      return std::nullopt;
    }
    count *= static_cast<std::uint64_t>(size);
  }
  return count;
}

/// Throws anything if the entry is not one of a tensor within `room` bytes.
SafetensorsFile::Entry read_entry(const Json& json, std::uint64_t room) {
  SafetensorsFile::Entry entry;
  const auto word = json.at("dtype").get<std::string>();
  for (const TypeWord& each : kTypes) {
    if (each.word == word) entry.dtype = each.dtype;
  }
  if (entry.dtype == at::ScalarType::Undefined) throw std::invalid_argument(word);
  entry.shape = json.at("shape").get<std::vector<std::int64_t>>();
  const auto [begin, end] = json.at("data_offsets").get<std::array<std::uint64_t, 2>>();
  if (begin > end || end > room) throw std::out_of_range(word);
  const auto count = count_of(entry.shape, end - begin);
  if (!count || *count * c10::elementSize(entry.dtype) != end - begin) {
    throw std::out_of_range(word);
  }
  entry.begin = begin;
  return entry;
}

}  // namespace

FileStamp write_safetensors(const std::filesystem::path& path,
                            const std::vector<NamedTensor>& tensors) {
  const std::string header = header_of(tensors);
  const std::uint64_t length = header.size();
  DurableFile file("checkpoint", path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const NamedTensor& each : tensors) {
    const at::Tensor bytes = each.tensor.detach().cpu().contiguous();
    file.write(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
  return file.finish();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(std::make_shared<MappedFile>("checkpoint", path)) {
  const std::span<const std::byte> bytes = file_->bytes();
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) refuse(path_, "it has no header");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - sizeof(length)) refuse(path_, "it ends within its header");
  const auto* const text = reinterpret_cast<const char*>(bytes.data()) + sizeof(length);
  if (line_of_deep_json({text, length})) refuse(path_, "its header is nested too deeply");
  const Json header = Json::parse(text, text + length, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) refuse(path_, "its header is no JSON object");
  const std::uint64_t data = sizeof(length) + length;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      Entry entry = read_entry(value, bytes.size() - data);
      entry.begin += data;
      entries_.emplace(name, std::move(entry));
    } catch (const std::exception&) {
      refuse(path_, "its header does not say what " + name + " is and where");
    }
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const Entry& entry = entries_.at(name);
  auto* const data = const_cast<std::byte*>(file_->bytes().data() + entry.begin);
  return at::from_blob(
      data, entry.shape, [file = file_](void* /*data*/) {}, at::TensorOptions().dtype(entry.dtype));
}

FileStamp SafetensorsFile::stamp() const {
  Digest hash;
  hash.add(file_->bytes());
  return {file_->bytes().size(), hash.value()};
}

}  // namespace spillway::app
