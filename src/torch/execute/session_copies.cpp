// What the session does not take on trust: that offloaded copies have the bits that were saved, and
// that saved memory stays where it was.
#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "spillway/core/error.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

CopyChecks::Slot SessionCore::digest_of(const c10::Storage& storage, Stream& stream) {
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  clock_.uses_stream();
  const CopyChecks::Number into = copy_checks_.take(device_->torch_device());
  device_->digest(storage, into.number, stream);
  if (std::ranges::find(check_streams_, &stream) == check_streams_.end()) {
    check_streams_.push_back(&stream);
  }
  return into.slot;
}

void SessionCore::digest_sources(std::unique_lock<SessionMutex>& lock,
                                 std::vector<CopySources::Source> sources) {
  if (sources.empty()) return;
  for (CopySources::Source& source : sources) {
    const BufferRef buffer = source.buffer.lock();
    if (buffer != nullptr && !buffer->on_device()) {
      buffer->digest_at_release = digest_of(source.storage, *buffer->stream);
      keep_until_read(*buffer, source.storage);
    }
    mutex_.free_outside(std::move(source.storage));
  }
  lock.unlock();  // Frees them, before anything is measured.
  lock.lock();
}

void SessionCore::check_copy(const SavedBuffer& buffer) {
  if (buffer.pass->over) return;  // Its step has reported what it found.
  const CopyChecks::Key key{buffer.pass->key.chunk, buffer.id, buffer.bytes};
  copy_checks_.expect_equal(key, CopyFault::kCopyDiffers, buffer.digest,
                            digest_of(buffer.storage, device_->current_stream()));
  if (buffer.digest_at_release < 0) return;
  copy_checks_.expect_equal(key, CopyFault::kSourceChanged, buffer.digest,
                            buffer.digest_at_release);
}

std::string SessionCore::name_of(const CopyChecks::Key& key) const {
  const std::string size = " (" + to_string(Bytes(key.bytes)) + ")";
  const auto named = [&](const Position& position, std::string_view maker) {
    const std::string by = maker.empty() ? "" : ", made by " + std::string(maker);
    return (position.scope.empty() ? "" : position.scope + " ") + position.saver + by + size;
  };
  const ChunkProfile* const chunk =
      current_.profile() == nullptr ? nullptr : recorded_chunk(key.chunk);
  const auto id = static_cast<std::size_t>(key.buffer);
  if (key.buffer >= 0 && chunk != nullptr && id < chunk->buffers.size()) {
    return named(chunk->buffers[id].position, chunk->buffers[id].producer.name);
  }
  if (key.buffer >= 0 && current_.plan() != nullptr) {
    for (const ChunkPlan& plan : current_.plan()->chunks) {
      if (plan.chunk == key.chunk && id < plan.decisions.size()) {
        return named(plan.decisions[id].position, {});
      }
    }
  }
  return "a tensor that was not profiled" + size;
}

std::vector<CopyChecks::Failure> SessionCore::read_copy_checks() {
  for (Stream* const stream : std::exchange(check_streams_, {})) {
    const EventRef end = stream_events_.take();
    stream->record(*end);
    device_->current_stream().wait(*end);
  }
  std::vector<CopyChecks::Failure> failures = copy_checks_.read();
  for (const auto& [key, fault] : failures) {
    const std::string text(to_string(fault));
    count_fallback("an offloaded tensor had other bits than were saved: " + text);
    for (const auto& pass : passes_) {
      const bool has_it = pass->key.chunk == key.chunk &&
                          static_cast<std::size_t>(key.buffer) < pass->buffers.size();
      if (key.buffer >= 0 && has_it) never_move(*pass, key.buffer, text);
    }
  }
  return failures;
}

void SessionCore::report_copies(const std::vector<CopyChecks::Failure>& failures) {
  if (failures.empty()) return;
  std::string names;
  constexpr std::size_t kMostNames = 5;
  for (std::size_t i = 0; i < std::min(failures.size(), kMostNames); ++i) {
    names += "\n  " + name_of(failures[i].key) + ": " + std::string(to_string(failures[i].fault));
  }
  if (failures.size() > kMostNames) {
    names += "\n  and " + std::to_string(failures.size() - kMostNames) + " more";
  }
  step_error_ = std::make_exception_ptr(VerificationError(
      "verify", "step " + std::to_string(controller_.steps()) + ": " +
                    std::to_string(failures.size()) +
                    " offloaded tensors had other bits than autograd saved, so the gradients of "
                    "this step are wrong: discard them (zero_grad) and repeat the batch. Those "
                    "that the plan names are kept on the device from now on." +
                    names));
}

void SessionCore::throw_step_error() {
  if (!in_its_process()) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(step_error_, nullptr);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void SessionCore::demote_owned_elsewhere() {
  const NeverMoved::Found found = never_moved_.take_found();
  if (found.empty()) return;
  if (current_.profile() != nullptr) {
    Profile profile = *current_.profile();
    NeverMoved::keep(found, profile);
    current_.set_profile(std::move(profile));
  }
  if (current_.plan() == nullptr) return;
  Plan plan = *current_.plan();
  for (std::string& each : never_moved_.keep(found, plan)) current_.note_demoted(std::move(each));
  current_.revise(std::move(plan));
  fit_windows();
}

void SessionCore::keep_until_read(const SavedBuffer& buffer, const c10::Storage& storage) {
  device_->keep_until_done(storage, *buffer.stream);
  for (Stream* const stream : buffer.savers) device_->keep_until_done(storage, *stream);
}

void SessionCore::note_stream(Pass& pass, Stream& stream) {
  const auto found = std::find(pass.streams.begin(), pass.streams.end(), &stream);
  if (found == pass.streams.end()) pass.streams.push_back(&stream);
}

bool SessionCore::is_new_reader(SavedBuffer& buffer, Stream& stream) {
  const auto found = std::find(buffer.readers.begin(), buffer.readers.end(), &stream);
  if (found != buffer.readers.end()) return false;
  buffer.readers.push_back(&stream);
  return true;
}

void SessionCore::order_before_free(SavedBuffer& buffer) {
  if (buffer.action == ActionKind::kRecompute || buffer.verify) join_streams(*buffer.pass);
  for (Stream* const reader : buffer.readers) {
    if (reader == buffer.stream) continue;
    const EventRef end = stream_events_.take();
    reader->record(*end);
    buffer.stream->wait(*end);
  }
}

void SessionCore::join_streams(Pass& pass) {
  if (pass.streams.size() < 2) return;
  std::vector<EventRef> ends;
  for (Stream* const stream : pass.streams) {
    ends.push_back(stream_events_.take());
    stream->record(*ends.back());
  }
  for (Stream* const stream : pass.streams) {
    for (const EventRef& end : ends) stream->wait(*end);
  }
}

}  // namespace spillway
