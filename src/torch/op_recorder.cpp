#include "op_recorder.hpp"

#include <utility>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

thread_local OpRecorder* t_recorder = nullptr;
thread_local bool t_busy = false;  // In a callback, whose own operators are nobody's business.

struct Busy {
  Busy() { t_busy = true; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { t_busy = false; }
};

struct CallContext final : at::ObserverContext {
  int call = -1;
};

/// The operator as autograd saw it: below autograd it falls apart into kernels.
bool autograd_sees_it() {
  return !c10::impl::tls_local_dispatch_key_set().excluded_.has_any(c10::autograd_dispatch_keyset);
}

}  // namespace

void OpRecorder::start() {
  if (running_) return;
  running_ = true;
  t_recorder = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_begin, &on_end)
                                           .needsInputs(false)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

void OpRecorder::stop() noexcept {
  if (!running_) return;
  running_ = false;
  at::removeCallback(handle_);
  if (t_recorder == this) t_recorder = nullptr;
}

const std::string& OpRecorder::current() const {
  static const std::string kNone;
  return running_calls_.empty() ? kNone
                                : calls_[static_cast<std::size_t>(running_calls_.back())].name;
}

int OpRecorder::maker_of(const c10::StorageImpl* storage) const {
  const auto found = makers_.find(storage);
  return found == makers_.end() ? -1 : found->second.call;
}

std::unique_ptr<at::ObserverContext> OpRecorder::on_begin(const at::RecordFunction& function) {
  if (t_recorder == nullptr || t_busy || !autograd_sees_it()) return nullptr;
  const Busy busy;
  OpRecorder& self = *t_recorder;
  auto context = std::make_unique<CallContext>();
  context->call = static_cast<int>(self.calls_.size());
  self.calls_.push_back({function.name(), Scope::current(), self.device_->mark(), {}});
  self.running_calls_.push_back(context->call);
  return context;
}

void OpRecorder::on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (t_recorder == nullptr || context == nullptr) return;
  const Busy busy;
  OpRecorder& self = *t_recorder;
  const int call = static_cast<CallContext*>(context)->call;
  self.calls_[static_cast<std::size_t>(call)].end = self.device_->mark();
  while (!self.running_calls_.empty() && self.running_calls_.back() >= call) {
    self.running_calls_.pop_back();
  }
  for (const c10::IValue& output : function.outputs()) {
    if (output.isTensor()) {
      self.made(output.toTensor(), call);
    } else if (output.isTensorList()) {
      for (const at::Tensor& tensor : output.toTensorVector()) self.made(tensor, call);
    }
  }
}

void OpRecorder::made(const at::Tensor& tensor, int call) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  // Inner calls end first: the deepest call that autograd sees owns what it made.
  const auto [entry, added] = makers_.try_emplace(storage);
  if (!added) return;
  entry->second.call = call;
  entry->second.pin = StoragePin(storage);
}

}  // namespace spillway
