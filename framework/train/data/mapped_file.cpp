#include "train/data/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

[[noreturn]] void fail(std::string_view operation, const std::filesystem::path& path, int error) {
  throw IoError(operation, "cannot read " + path.string() + ": " +
                               std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

std::span<const std::byte> map(int file, std::string_view operation,
                               const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file, &status) != 0) fail(operation, path, errno);
  if (S_ISDIR(status.st_mode)) fail(operation, path, EISDIR);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};  // Which cannot be mapped.
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (address == MAP_FAILED) fail(operation, path, errno);
  return {static_cast<const std::byte*>(address), size};
}

}  // namespace

MappedFile::MappedFile(std::string_view operation, const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(operation, path, errno);
  try {
    bytes_ = map(file, operation, path);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace spillway::app
