#include "torch/execute/session_core.hpp"

namespace spillway {

SessionCore::ClockPause::ClockPause(SessionCore& core) noexcept {
  if (!core.clock_.running() || core.device_->is_capturing()) return;
  core_ = &core;
  const std::lock_guard lock(core.mutex_);
  clock_start_ = core.clock_.starts();
  core.clock_.pause();
  try {
    core.watch_.find_last_forward_use(core.mutex_, core.copies_.sources());
  } catch (...) {
    core.note_failure("looking for the last use of a saved tensor");
  }
}

SessionCore::ClockPause::~ClockPause() {
  if (core_ == nullptr) return;
  const std::lock_guard lock(core_->mutex_);
  // Another thread may have ended the step and begun the next one meanwhile.
  if (core_->clock_.starts() == clock_start_) core_->clock_.resume();
}

void SessionCore::wait_untimed(const std::function<void()>& wait) {
  if (device_->is_capturing()) return wait();
  const ClockPause clock_pause(*this);
  {
    const std::lock_guard lock(mutex_);
    clock_.uses_stream();  // The device may wait, too.
  }
  wait();
}

void SessionCore::note_save(Pass& pass, int site) {
  if (pass.backward_begun) pass.moments->in_order = false;
  clock_.moment(pass.moments, MomentKind::kSave, site);
}

void SessionCore::note_site(const std::shared_ptr<Pass>& pass, int id, const at::Tensor& tensor,
                            const BufferRef& buffer) {
  if (pass->moments->saved(id) && task_.records()) watch_.add(pass, id, tensor.storage(), buffer);
}

void SessionCore::note_call(Pass& pass, MomentKind kind, int call) {
  // What the caller computes after the backward of the last pass has begun belongs to no forward.
  const bool forward = !pass.backward_begun && !backward_announced_;
  if (pass.moments != nullptr && forward) clock_.moment(pass.moments, kind, call);
}

void SessionCore::note_gone(Pass& pass, int id) {
  if (pass.moments == nullptr || !clock_.running() || !pass.moments->gone(id)) return;
  clock_.moment(pass.moments, MomentKind::kDrop, id);
  if (task_.records()) watch_.remove(pass, id, mutex_);
}

}  // namespace spillway
