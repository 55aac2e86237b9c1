/// Follows the operators of a thread's forward passes, as autograd sees them; internal.
///
/// Threads: the listener is called on the thread of its step only (StepThread), and never for
/// operators that run within backward or that it runs itself.
#pragma once

#include <exception>
#include <vector>

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/hooks/operator_traits.hpp"

namespace spillway {

class CallListener {
 public:
  /// `inputs` are valid during the call only. Returns a number for call_ended(), or -1 to skip it.
  virtual int call_begins(const OperatorTraits& traits,
                          c10::ArrayRef<const c10::IValue> inputs) = 0;
  virtual void call_ended(int call, const std::vector<c10::IValue>& outputs) = 0;
  /// One of the two threw. torch would swallow it, and the operator runs all the same.
  virtual void call_failed(const char* name, const std::exception_ptr& error) noexcept = 0;

 protected:
  ~CallListener() = default;
};

/// Calls the listener of this thread's step, if it is in one, until stop_recording_calls(). On this
/// thread both; never 0.
[[nodiscard]] at::CallbackHandle start_recording_calls();
void stop_recording_calls(at::CallbackHandle handle) noexcept;

/// While it lives, operators of this thread are the session's own: they are not recorded, and
/// neither modes (TorchDispatchMode) nor transforms of functions (torch.func) see them.
class RecordingPause {
 public:
  RecordingPause();
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;
  ~RecordingPause();

 private:
  bool before_;
  c10::impl::ExcludeDispatchKeyGuard without_modes_;
};

}  // namespace spillway
