#include "cuda_event.hpp"

#include "check.hpp"
#include "spillway/core/error.hpp"

namespace spillway::detail {

CudaEvent::CudaEvent(int device, Timing timing) : device_(device), timing_(timing) {
  const DeviceGuard guard(device);
  const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&handle_, flags), "make event", device);
}

CudaEvent::~CudaEvent() { (void)cudaEventDestroy(handle_); }

bool CudaEvent::query() const {
  const BesideCaptures beside;
  const cudaError_t code = cudaEventQuery(handle_);
  if (code != cudaErrorNotReady) return true;
  (void)cudaGetLastError();
  return false;
}

void CudaEvent::synchronize() const {
  const BesideCaptures beside;
  check(cudaEventSynchronize(handle_), "wait", device_);
}

Nanoseconds CudaEvent::elapsed_since(const Event& start) const {
  const auto& from = static_cast<const CudaEvent&>(start);
  from.require_time();
  require_time();
  if (!from.query() || !query()) {
    throw DeviceError("elapsed", "the event is not done yet; synchronize it first");
  }
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from.handle_, handle_), "elapsed", device_);
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

void CudaEvent::require_time() const {
  if (timing_ == Timing::kOff) {
    throw InvalidArgument("elapsed", "the event keeps no time; make it with Timing::kOn");
  }
  if (point().order == 0) {
    throw InvalidArgument("elapsed", "the event was never recorded; record it first");
  }
}

}  // namespace spillway::detail
