// What the session does not take on trust: that offloaded copies have the bits that were saved, and
// that saved memory stays where it was.
#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::check_saved(SavedBuffer& buffer, const at::Tensor& tensor) {
  if (!task_.checks_copies) return;
  log_.uses_stream();
  copies_.note_saved(buffer, tensor, device_->current_stream());
}

void SessionCore::digest_saved(SavedBuffer& buffer) {
  if (!task_.checks_copies) return;
  log_.uses_stream();
  copies_.digest_saved(buffer);
}

void SessionCore::digest_sources(std::unique_lock<SessionMutex>& lock,
                                 std::vector<CopySources::Source> sources) {
  if (sources.empty()) return;
  for (CopySources::Source& source : sources) {
    const BufferRef buffer = source.buffer.lock();
    if (buffer != nullptr && !buffer->on_device()) {
      log_.uses_stream();
      copies_.digest_released(*buffer, source.storage);
      streams_.keep_until_read(*buffer, source.storage);
    }
    mutex_.free_outside(std::move(source.storage));
  }
  lock.unlock();  // Frees them, before anything is measured.
  lock.lock();
}

void SessionCore::check_copy(const SavedBuffer& buffer) {
  if (buffer.pass->over) return;  // Its step has reported what it found.
  log_.uses_stream();
  copies_.compare(buffer, device_->current_stream());
}

std::vector<CopyChecks::Failure> SessionCore::read_copy_checks() {
  std::vector<CopyChecks::Failure> failures = copies_.read();
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
  step_error_ =
      error_of(failures, controller_.steps(), current_.profile().get(), current_.plan().get());
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
  renew_lists();
}

}  // namespace spillway
