#include "spillway/plan/profile.hpp"

#include "plan/profile/structure.hpp"
#include "util/files.hpp"

namespace spillway {

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
    case FixedReason::kOwnedElsewhere:
      return "owned elsewhere";
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
    case FixedReason::kOwnedElsewhere:
    case FixedReason::kSmall:
      return true;
  }
  return false;
}

std::string structure_digest(const Profile& profile) {
  StructureDigest digest;
  for (const ChunkProfile& chunk : profile.chunks) {
    digest.add_chunk(chunk.chunk);
    for (const BufferProfile& buffer : chunk.buffers) digest.add_buffer(buffer.position);
    for (const SiteProfile& site : chunk.sites) {
      digest.add_site(site.buffer, site.dtype, site.sizes.size());
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
