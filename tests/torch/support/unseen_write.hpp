/// A write that autograd does not see, to a tensor that it has saved.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

namespace spillway::testing {

/// While it lives, one call of an operator on this thread has one bit of its first argument changed
/// when it has returned, as a kernel of somebody else could do it. One at a time.
class UnseenWrite {
 public:
  /// `skipped`: so many calls come before it.
  explicit UnseenWrite(std::string name, int skipped = 0)
      : name_(std::move(name)), skipped_(skipped) {
    present_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  UnseenWrite(const UnseenWrite&) = delete;
  UnseenWrite& operator=(const UnseenWrite&) = delete;
  ~UnseenWrite() {
    at::removeCallback(handle_);
    present_ = nullptr;
  }

  [[nodiscard]] bool done() const { return done_; }

 private:
  struct Argument final : at::ObserverContext {
    at::Tensor tensor;
  };

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    if (present_->name_ != call.name() || present_->skipped_-- != 0) return nullptr;
    auto argument = std::make_unique<Argument>();
    argument->tensor = call.inputs()[0].toTensor();
    return argument;
  }
  static void end(const at::RecordFunction& /*call*/, at::ObserverContext* context) {
    if (context == nullptr) return;
    const at::Tensor& tensor = static_cast<Argument*>(context)->tensor;
    static_cast<unsigned char*>(tensor.mutable_data_ptr())[2] ^= 0x10U;
    present_->done_ = true;
  }

  static inline thread_local UnseenWrite* present_ = nullptr;

  std::string name_;
  int skipped_;
  at::CallbackHandle handle_{};
  bool done_ = false;
};

}  // namespace spillway::testing
