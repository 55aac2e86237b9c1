#include "torch/hooks/call_recorder.hpp"

#include <utility>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include "torch/hooks/step_thread.hpp"

namespace spillway {
namespace {

thread_local bool t_paused = false;

struct CallContext final : at::ObserverContext {
  CallContext(std::uint64_t step_number, int id) : step(step_number), call(id) {}

  std::uint64_t step;
  int call;
};

constexpr c10::DispatchKeySet kModes{c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                     c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                     c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                     c10::DispatchKey::FuncTorchVmapMode};

/// Below autograd an operator falls apart into kernels.
bool autograd_sees_it() {
  return !c10::impl::tls_local_dispatch_key_set().excluded_.has_any(c10::autograd_dispatch_keyset);
}

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  if (t_paused || !autograd_sees_it() || in_backward()) return nullptr;
  const StepThread* const step = StepThread::current();
  if (step == nullptr) return nullptr;
  const std::uint64_t number = step->number();
  const StepThread::Locked session = step->lock();
  if (session.owner == nullptr || session.listener == nullptr) return nullptr;
  const RecordingPause pause;
  try {
    const OperatorTraits* const traits = traits_of(function);
    if (traits == nullptr) return nullptr;
    auto context = std::make_unique<CallContext>(number, -1);
    context->call = session.listener->call_begins(*traits, function.inputs());
    if (context->call >= 0) return context;
  } catch (...) {
    session.listener->call_failed(function.name(), std::current_exception());
  }
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  const StepThread* const step = context == nullptr ? nullptr : StepThread::current();
  // The call may have ended the step that it began in, and begun another one.
  const auto* const begun = static_cast<const CallContext*>(context);
  if (step == nullptr || step->number() != begun->step) return;
  const StepThread::Locked session = step->lock();
  if (session.owner == nullptr || session.listener == nullptr) return;
  const RecordingPause pause;
  try {
    session.listener->call_ended(begun->call, function.outputs());
  } catch (...) {
    session.listener->call_failed(function.name(), std::current_exception());
  }
}

}  // namespace

RecordingPause::RecordingPause() : before_(std::exchange(t_paused, true)), without_modes_(kModes) {}
RecordingPause::~RecordingPause() { t_paused = before_; }

at::CallbackHandle start_recording_calls() {
  return at::addThreadLocalCallback(at::RecordFunctionCallback(&on_begin, &on_end)
                                        .needsInputs(true)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
}

void stop_recording_calls(at::CallbackHandle handle) noexcept { at::removeCallback(handle); }

}  // namespace spillway
