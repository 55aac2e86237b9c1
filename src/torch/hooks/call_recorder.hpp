/// Follows the operators of a thread's forward passes, as autograd sees them; internal.
///
/// Threads: start() and stop() on the thread that is followed. The listener is called on that
/// thread only, and never for operators that run within backward or that it runs itself.
#pragma once

#include <string>
#include <vector>

#include <ATen/record_function.h>

#include "torch/hooks/operator_traits.hpp"

namespace spillway {

class CallListener {
 public:
  /// `inputs` are valid during the call only. Returns a number for call_ended(), or -1 to skip it.
  virtual int call_begins(const OperatorTraits& traits,
                          c10::ArrayRef<const c10::IValue> inputs) = 0;
  virtual void call_ended(int call, const std::vector<c10::IValue>& outputs) = 0;
  /// One of the two threw. torch would swallow it, and the operator runs all the same.
  virtual void call_failed(const std::string& reason) noexcept = 0;

 protected:
  ~CallListener() = default;
};

class CallRecorder {
 public:
  explicit CallRecorder(CallListener& listener) : listener_(&listener) {}
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;
  ~CallRecorder() { stop(); }

  void start();
  void stop() noexcept;

  /// While it lives, operators of this thread are not recorded.
  class Pause {
   public:
    Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause();

   private:
    bool before_;
  };

 private:
  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function);
  static void on_end(const at::RecordFunction& function, at::ObserverContext* context);

  CallListener* listener_;
  bool running_ = false;
  at::CallbackHandle handle_ = 0;
};

}  // namespace spillway
