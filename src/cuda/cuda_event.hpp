/// Internal to the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include "spillway/core/device.hpp"
#include "spillway/core/event.hpp"

namespace spillway::detail {

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, Timing timing);
  ~CudaEvent() override;

  [[nodiscard]] bool query() const override;
  void synchronize() const override;
  [[nodiscard]] Nanoseconds elapsed_since(const Event& start) const override;

  [[nodiscard]] cudaEvent_t handle() const noexcept { return handle_; }

 private:
  void require_time() const;

  int device_;
  Timing timing_;
  cudaEvent_t handle_ = nullptr;
};

}  // namespace spillway::detail
