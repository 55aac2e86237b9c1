#include "train/checkpoint/durable_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

[[noreturn]] void refuse(const std::string& operation, const std::filesystem::path& path,
                         int error) {
  throw IoError(operation, "cannot write " + path.string() + ": " +
                               std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

DurableFile::DurableFile(std::string_view operation, std::filesystem::path path)
    : operation_(operation),
      path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail(errno);
}

DurableFile::~DurableFile() {
  if (file_ >= 0) ::close(file_);
}

void DurableFile::fail(int error) const { refuse(operation_, path_, error); }

void DurableFile::write(std::span<const std::byte> bytes) {
  hash_.add(bytes);
  size_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

FileStamp DurableFile::finish() {
  if (::fsync(file_) != 0) fail(errno);
  if (::close(std::exchange(file_, -1)) != 0) fail(errno);
  return {size_, hash_.value()};
}

void sync_folder(std::string_view operation, const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) refuse(std::string(operation), folder, errno);
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  if (result != 0) refuse(std::string(operation), folder, error);
}

}  // namespace spillway::app
