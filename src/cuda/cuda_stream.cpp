#include "cuda_stream.hpp"

#include <utility>

#include "check.hpp"
#include "cuda_event.hpp"
#include "spillway/core/error.hpp"

namespace spillway::detail {
namespace {

/// What travels through cudaLaunchHostFunc.
struct QueuedCall {
  std::string stream;
  std::string operation;
  std::function<void()> function;
  std::shared_ptr<CallErrors> errors;
};

void run_queued(void* argument) {
  const std::unique_ptr<QueuedCall> call(static_cast<QueuedCall*>(argument));
  try {
    call->function();
  } catch (const std::exception& cause) {
    call->errors->set(std::make_exception_ptr(DeviceError(
        call->operation, "failed on stream \"" + call->stream + "\": " + cause.what())));
  } catch (...) {
    call->errors->set(std::make_exception_ptr(DeviceError(
        call->operation, "failed on stream \"" + call->stream + "\" with an unknown error")));
  }
}

cudaMemcpyKind to_cuda(CopyKind kind) {
  switch (kind) {
    case CopyKind::kToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kOnDevice:
      return cudaMemcpyDeviceToDevice;
  }
  return cudaMemcpyDefault;
}

}  // namespace

void CallErrors::set(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = std::move(error);
}

void CallErrors::rethrow() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

CudaStream::CudaStream(std::uint64_t id, int device, std::string name, cudaStream_t handle,
                       Ownership ownership)
    : Stream(id),
      device_(device),
      name_(std::move(name)),
      handle_(handle),
      ownership_(ownership),
      errors_(std::make_shared<CallErrors>()) {}

CudaStream::~CudaStream() {
  if (ownership_ == Ownership::kOwned) (void)cudaStreamDestroy(handle_);
}

bool CudaStream::query() const {
  const BesideCaptures beside;
  const cudaError_t code = cudaStreamQuery(handle_);
  if (code != cudaErrorNotReady) return true;
  (void)cudaGetLastError();
  return false;
}

void CudaStream::synchronize() {
  const BesideCaptures beside;
  check(cudaStreamSynchronize(handle_), "synchronize", device_);
  errors_->rethrow();
}

void CudaStream::do_copy(void* to, const void* from, Bytes size, CopyKind kind) {
  const DeviceGuard guard(device_);
  check(cudaMemcpyAsync(to, from, size.count(), to_cuda(kind), handle_), "copy", device_);
}

void CudaStream::do_copy_batch(std::span<const CopyItem> items, CopyKind kind) {
#if CUDART_VERSION >= 13000
  to_.clear();
  from_.clear();
  sizes_.clear();
  for (const CopyItem& item : items) {
    to_.push_back(item.to);
    from_.push_back(item.from);
    sizes_.push_back(item.size.count());
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  const DeviceGuard guard(device_);
  check(cudaMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), sizes_.size(), &attributes,
                             &first, 1, handle_),
        "copy", device_);
  (void)kind;  // Each pointer's own memory says it.
#else
  Stream::do_copy_batch(items, kind);
#endif
}

void CudaStream::do_fill(void* to, std::byte value, Bytes size) {
  const DeviceGuard guard(device_);
  check(cudaMemsetAsync(to, std::to_integer<int>(value), size.count(), handle_), "fill", device_);
}

void CudaStream::do_call(std::string operation, std::function<void()> function) {
  const DeviceGuard guard(device_);
  auto call = std::make_unique<QueuedCall>(
      QueuedCall{name_, std::move(operation), std::move(function), errors_});
  check(cudaLaunchHostFunc(handle_, run_queued, call.get()), "call", device_);
  (void)call.release();  // run_queued owns it now.
}

void CudaStream::do_record(Event& event) {
  check(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle_), "record", device_);
}

void CudaStream::do_wait(const Event& event) {
  check(cudaStreamWaitEvent(handle_, static_cast<const CudaEvent&>(event).handle(), 0), "wait",
        device_);
}

}  // namespace spillway::detail
