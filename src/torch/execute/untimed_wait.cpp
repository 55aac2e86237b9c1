#include "spillway/torch/untimed_wait.hpp"

#include "torch/execute/session_core.hpp"

namespace spillway {

void untimed_wait(const std::function<void()>& wait) {
  const StepThread* const step = StepThread::current();
  const StepThread::Locked session = step != nullptr ? step->lock() : StepThread::Locked();
  if (session.owner == nullptr) return wait();
  static_cast<SessionCore*>(session.interceptor)->wait_untimed(wait);
}

}  // namespace spillway
