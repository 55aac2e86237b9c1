#include "torch/execute/copy_verification.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "spillway/core/error.hpp"
#include "torch/hooks/call_recorder.hpp"

namespace spillway {
namespace {

const ChunkProfile* chunk_of(const Profile& profile, int number) {
  const auto found = std::ranges::find(profile.chunks, number, &ChunkProfile::chunk);
  return found == profile.chunks.end() ? nullptr : &*found;
}

std::string name_of(const CopyChecks::Key& key, const Profile* profile, const Plan* plan) {
  const std::string size = " (" + to_string(Bytes(key.bytes)) + ")";
  const auto named = [&](const Position& position, std::string_view maker) {
    const std::string by = maker.empty() ? "" : ", made by " + std::string(maker);
    return (position.scope.empty() ? "" : position.scope + " ") + position.saver + by + size;
  };
  const ChunkProfile* const chunk = profile == nullptr ? nullptr : chunk_of(*profile, key.chunk);
  const auto id = static_cast<std::size_t>(key.buffer);
  if (key.buffer >= 0 && chunk != nullptr && id < chunk->buffers.size()) {
    return named(chunk->buffers[id].position, chunk->buffers[id].producer.name);
  }
  if (key.buffer >= 0 && plan != nullptr) {
    for (const ChunkPlan& each : plan->chunks) {
      if (each.chunk == key.chunk && id < each.decisions.size()) {
        return named(each.decisions[id].position, {});
      }
    }
  }
  return "a tensor that was not profiled" + size;
}

}  // namespace

void CopyVerification::note_saved(SavedBuffer& buffer, const at::Tensor& tensor, Stream& running) {
  const ByteRange bytes = ByteRange::of(tensor);
  const auto is_same = [&](const CopyChecks::Part& part) { return part.bytes == bytes; };
  if (bytes.size == 0 || std::ranges::any_of(buffer.checked, is_same)) return;
  const bool moves = buffer.is_checked();
  CopyChecks::Part& part = buffer.checked.emplace_back();
  part.bytes = bytes;
  if (moves) part.saved = digest(tensor.storage(), bytes, running);
}

void CopyVerification::digest_saved(SavedBuffer& buffer) {
  if (buffer.checked.empty()) {  // Held for replays, which may read all of it.
    buffer.checked.emplace_back().bytes = ByteRange::whole(buffer.storage);
  }
  for (CopyChecks::Part& part : buffer.checked) {
    if (part.saved < 0) part.saved = digest(buffer.storage, part.bytes, *buffer.stream);
  }
}

void CopyVerification::digest_released(SavedBuffer& buffer, const c10::Storage& original) {
  for (CopyChecks::Part& part : buffer.checked) {
    if (part.saved >= 0) part.at_release = digest(original, part.bytes, *buffer.stream);
  }
}

CopyChecks::Slot CopyVerification::digest(const c10::Storage& storage, ByteRange bytes,
                                          Stream& stream) {
  if (!bytes.is_in(storage)) return CopyChecks::kNone;
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  const CopyChecks::Number into = checks_.take(device_.torch_device());
  device_.digest(storage, bytes, into.number, stream);
  note_stream(stream);
  return into.slot;
}

void CopyVerification::note_stream(Stream& stream) {
  if (std::ranges::find(digested_on_, &stream) == digested_on_.end()) {
    digested_on_.push_back(&stream);
  }
}

void CopyVerification::compare(const SavedBuffer& buffer, Stream& running) {
  const CopyChecks::Key key{buffer.pass->key.chunk, buffer.id, buffer.bytes};
  for (const CopyChecks::Part& part : buffer.checked) {
    if (part.saved < 0) continue;
    checks_.expect_equal(key, CopyFault::kCopyDiffers, part.saved,
                         digest(buffer.storage, part.bytes, running));
    if (part.at_release < 0) continue;
    checks_.expect_equal(key, CopyFault::kSourceChanged, part.saved, part.at_release);
  }
}

std::vector<CopyChecks::Failure> CopyVerification::read() {
  streams_.wait_for(std::exchange(digested_on_, {}));
  return checks_.read();
}

std::exception_ptr error_of(const std::vector<CopyChecks::Failure>& failures, std::uint64_t step,
                            const Profile* profile, const Plan* plan) {
  std::string names;
  constexpr std::size_t kMostNames = 5;
  for (std::size_t i = 0; i < std::min(failures.size(), kMostNames); ++i) {
    names += "\n  " + name_of(failures[i].key, profile, plan) + ": " +
             std::string(to_string(failures[i].fault));
  }
  if (failures.size() > kMostNames) {
    names += "\n  and " + std::to_string(failures.size() - kMostNames) + " more";
  }
  return std::make_exception_ptr(VerificationError(
      "verify", "step " + std::to_string(step) + ": " + std::to_string(failures.size()) +
                    " offloaded tensors had other bits than autograd saved, so the gradients of "
                    "this step are wrong: discard them (zero_grad) and repeat the batch. Those "
                    "that the plan names are kept on the device from now on." +
                    names));
}

}  // namespace spillway
