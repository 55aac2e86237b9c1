#include "torch/hooks/call_recorder.hpp"

#include <utility>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include "torch/hooks/error_text.hpp"

namespace spillway {
namespace {

thread_local CallListener* t_listener = nullptr;
thread_local bool t_paused = false;

struct CallContext final : at::ObserverContext {
  int call = -1;
};

/// Below autograd an operator falls apart into kernels.
bool autograd_sees_it() {
  return !c10::impl::tls_local_dispatch_key_set().excluded_.has_any(c10::autograd_dispatch_keyset);
}

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace

CallRecorder::Pause::Pause() : before_(std::exchange(t_paused, true)) {}
CallRecorder::Pause::~Pause() { t_paused = before_; }

void CallRecorder::start() {
  if (running_) return;
  running_ = true;
  t_listener = listener_;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_begin, &on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

void CallRecorder::stop() noexcept {
  if (!running_) return;
  running_ = false;
  at::removeCallback(handle_);
  if (t_listener == listener_) t_listener = nullptr;
}

std::unique_ptr<at::ObserverContext> CallRecorder::on_begin(const at::RecordFunction& function) {
  if (t_listener == nullptr || t_paused || !autograd_sees_it() || in_backward()) return nullptr;
  const OperatorTraits* const traits = traits_of(function);
  if (traits == nullptr) return nullptr;
  const Pause pause;
  int call = -1;
  try {
    call = t_listener->call_begins(*traits, function.inputs());
  } catch (...) {
    t_listener->call_failed(traits->name + ": " + text_of(std::current_exception()));
  }
  if (call < 0) return nullptr;
  auto context = std::make_unique<CallContext>();
  context->call = call;
  return context;
}

void CallRecorder::on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (t_listener == nullptr || context == nullptr) return;
  const Pause pause;
  try {
    t_listener->call_ended(static_cast<CallContext*>(context)->call, function.outputs());
  } catch (...) {
    t_listener->call_failed(function.name() + (": " + text_of(std::current_exception())));
  }
}

}  // namespace spillway
