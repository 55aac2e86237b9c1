#include "torch/execute/session_core.hpp"

namespace spillway {

SessionCore::ComputePause::ComputePause(SessionCore& core) noexcept {
  if (!core.log_.times_compute() || core.device_->is_capturing()) return;
  core_ = &core;
  const std::lock_guard lock(core.mutex_);
  step_ = core.log_.steps();
  core.log_.pause();
  try {
    core.watch_.find_last_forward_use(core.mutex_, core.copies_.sources());
    core.note_moved_while_recording();
  } catch (...) {
    core.note_failure("looking for the last use of a saved tensor");
  }
}

SessionCore::ComputePause::~ComputePause() {
  if (core_ == nullptr) return;
  const std::lock_guard lock(core_->mutex_);
  // Another thread may have ended the step and begun the next one meanwhile.
  if (core_->log_.steps() == step_) core_->log_.resume();
}

void SessionCore::wait_untimed(const std::function<void()>& wait) {
  if (device_->is_capturing()) return wait();
  const ComputePause compute_pause(*this);
  {
    const std::lock_guard lock(mutex_);
    log_.uses_stream();  // The device may wait, too.
  }
  wait();
}

void SessionCore::note_moment(Pass& pass, MomentKind kind, int index, int detail) {
  if (!pass.timed || !log_.times_compute()) return;
  log_.moment(pass.number, kind, index, detail);
  ++pass.timed->moments;
}

void SessionCore::note_site(const std::shared_ptr<Pass>& pass, int id, const at::Tensor& tensor,
                            const BufferRef& buffer) {
  if (pass->timed->saved(id) && task_.records()) watch_.add(pass, id, tensor.storage(), buffer);
}

void SessionCore::note_call(Pass& pass, MomentKind kind, int call, int name) {
  // What the caller computes after the backward of the last pass has begun belongs to no forward.
  if (!pass.backward_begun && !backward_announced_) note_moment(pass, kind, call, name);
}

void SessionCore::note_gone(Pass& pass, int id) {
  if (!pass.timed || !log_.times_compute() || !pass.timed->gone(id)) return;
  note_moment(pass, MomentKind::kDrop, id);
  if (task_.records()) watch_.remove(pass, id, mutex_);
}

}  // namespace spillway
