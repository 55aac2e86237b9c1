#include "torch/hooks/step_thread.hpp"

#include <utility>

#include "torch/hooks/call_recorder.hpp"
#include "torch/hooks/scope_recording.hpp"

namespace spillway {

std::shared_ptr<StepThread> StepThread::begin(Session session) {
  static std::atomic<std::uint64_t> steps{0};
  (void)current();  // Leaves one that has ended.
  std::shared_ptr<StepThread> step(
      new StepThread(std::move(session), steps.fetch_add(1, std::memory_order_relaxed) + 1));
  ThreadEnd& end = thread_end();
  forget_scopes();
  if (step->session_.listener != nullptr) end.callback = start_recording_calls();
  end.step = step;
  t_step = step.get();
  return step;
}

void StepThread::end() noexcept {
  over_.store(true, std::memory_order_release);
  if (t_step == this) leave();
}

void StepThread::leave() noexcept {
  ThreadEnd& end = thread_end();
  t_step = nullptr;
  if (end.callback != 0) stop_recording_calls(std::exchange(end.callback, 0));
  forget_scopes();
  end.step.reset();
}

// torch removes the thread's callbacks itself.
StepThread::ThreadEnd::~ThreadEnd() {
  t_step = nullptr;
  if (step != nullptr) step->over_.store(true, std::memory_order_release);
}

StepThread::ThreadEnd& StepThread::thread_end() {
  thread_local ThreadEnd end;
  return end;
}

}  // namespace spillway
