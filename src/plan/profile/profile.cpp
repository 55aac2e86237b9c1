#include "spillway/plan/profile.hpp"

#include <array>
#include <cstdio>

#include "util/files.hpp"

namespace spillway {
namespace {

/// FNV-1a, 64 bits: small, and the same on every machine.
class Digest {
 public:
  /// The zero byte keeps ("ab", "c") and ("a", "bc") apart.
  void add(std::string_view text) {
    for (const char each : text) add_byte(static_cast<unsigned char>(each));
    add_byte(0);
  }

  [[nodiscard]] std::string text() const {
    std::array<char, 32> hex{};
    std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(state_));
    return hex.data();
  }

 private:
  void add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }

  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::string_view to_string(FixedReason reason) {
  switch (reason) {
    case FixedReason::kNone:
      return "none";
    case FixedReason::kParameter:
      return "parameter";
    case FixedReason::kRegisteredBuffer:
      return "registered buffer";
    case FixedReason::kCallerOwned:
      return "caller-owned";
    case FixedReason::kChangedLater:
      return "changed later";
    case FixedReason::kOtherDevice:
      return "other device";
    case FixedReason::kUnsupportedLayout:
      return "unsupported layout";
    case FixedReason::kSmall:
      return "small";
  }
  return {};
}

std::string_view to_string(MomentKind kind) {
  switch (kind) {
    case MomentKind::kCallBegins:
      return "call begins";
    case MomentKind::kCallEnds:
      return "call ends";
    case MomentKind::kSave:
      return "save";
    case MomentKind::kBackwardBegins:
      return "backward begins";
    case MomentKind::kUnpack:
      return "unpack";
    case MomentKind::kDrop:
      return "drop";
    case MomentKind::kEnd:
      return "end";
  }
  return {};
}

bool is_step_memory(FixedReason reason) {
  switch (reason) {
    case FixedReason::kParameter:
    case FixedReason::kRegisteredBuffer:
    case FixedReason::kOtherDevice:
    case FixedReason::kUnsupportedLayout:
      return false;
    case FixedReason::kNone:
    case FixedReason::kCallerOwned:
    case FixedReason::kChangedLater:
    case FixedReason::kSmall:
      return true;
  }
  return false;
}

std::string structure_digest(const Profile& profile) {
  Digest digest;
  for (const ChunkProfile& chunk : profile.chunks) {
    digest.add("chunk " + std::to_string(chunk.chunk));
    for (const BufferProfile& buffer : chunk.buffers) {
      digest.add(buffer.position.scope);
      digest.add(buffer.position.saver);
      digest.add(std::to_string(buffer.position.ordinal));
    }
    for (const SiteProfile& site : chunk.sites) {
      digest.add(std::to_string(site.buffer));
      digest.add(site.dtype);
      digest.add(std::to_string(site.sizes.size()));
    }
  }
  return digest.text();
}

Profile load_profile(const std::filesystem::path& path) {
  return profile_from_json(read_file("profile", path), path.string());
}

void save_profile(const Profile& profile, const std::filesystem::path& path) {
  write_file("profile", path, to_json(profile));
}

}  // namespace spillway
