/// Tensors in a file of the format safetensors: eight bytes with the length of a header, the header
/// as JSON, then the bytes of the tensors one after the other. Any reader of the format opens it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/checkpoint/durable_file.hpp"
#include "train/data/mapped_file.hpp"
#include "train/model/named_tensor.hpp"

namespace spillway::app {

/// Writes the tensors, wherever they live, one after the other.
/// Errors: IoError if it cannot be written; InvalidArgument for a name that is there twice or a
/// type that the format does not have.
FileStamp write_safetensors(const std::filesystem::path& path,
                            const std::vector<NamedTensor>& tensors);

/// A file of the format, by memory map.
class SafetensorsFile {
 public:
  struct Entry {
    at::ScalarType dtype = at::ScalarType::Undefined;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< In the file.
  };

  /// Errors: IoError if it cannot be read, or if its header says what cannot be.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(const std::string& name) const { return entries_.contains(name); }
  /// On the CPU, on the file's own bytes, which it holds; not to be written to.
  /// Precondition: has(name).
  [[nodiscard]] at::Tensor tensor(const std::string& name) const;
  /// Of the file as it is; reads all of it.
  [[nodiscard]] FileStamp stamp() const;

 private:
  std::string path_;
  std::shared_ptr<MappedFile> file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace spillway::app
