#include "util/files.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

class File {
 public:
  File(const std::filesystem::path& path, int flags)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { (void)close(); }

  [[nodiscard]] bool open() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  [[nodiscard]] bool close() noexcept {
    const int descriptor = std::exchange(descriptor_, -1);
    return descriptor < 0 || ::close(descriptor) == 0;
  }

  [[nodiscard]] bool write(std::string_view text) noexcept {
    while (!text.empty()) {
      const ssize_t count = ::write(descriptor_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

 private:
  int descriptor_;
};

[[noreturn]] void fail(std::string_view operation, const char* verb,
                       const std::filesystem::path& path, int error) {
  throw IoError(operation, std::string("cannot ") + verb + " " + path.string() + ": " +
                               std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

std::string read_file(std::string_view operation, const std::filesystem::path& path) {
  const File file(path, O_RDONLY);
  if (!file.open()) fail(operation, "read", path, errno);
  std::string text;
  std::array<char, 1U << 16U> block{};
  for (;;) {
    const ssize_t count = ::read(file.descriptor(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(operation, "read", path, errno);
    if (count == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
}

void write_file(std::string_view operation, const std::filesystem::path& path,
                std::string_view text) {
  // In the same folder, because a file can only be renamed within its file system.
  std::filesystem::path temporary = path;
  temporary += ".new." + std::to_string(::getpid());
  File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.open()) fail(operation, "write", path, errno);
  if (file.write(text) && ::fsync(file.descriptor()) == 0 && file.close() &&
      ::rename(temporary.c_str(), path.c_str()) == 0) {
    return;
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  fail(operation, "write", path, error);
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;  // What matters is whether the file can be written.
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) {
    throw IoError("write", "cannot write " + path.string() +
                               "; give a path in a folder that exists and may be written to");
  }
}

}  // namespace spillway
