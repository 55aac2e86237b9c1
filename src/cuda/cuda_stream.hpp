/// Internal to the CUDA device.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "spillway/core/stream.hpp"

namespace spillway::detail {

/// The first error of a function queued by Stream::call(); it can only be thrown later.
class CallErrors {
 public:
  void set(std::exception_ptr error);
  /// Throws the error once.
  void rethrow();

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

class CudaStream final : public Stream {
 public:
  enum class Ownership { kOwned, kBorrowed };

  CudaStream(std::uint64_t id, int device, std::string name, cudaStream_t handle,
             Ownership ownership);
  ~CudaStream() override;

  [[nodiscard]] bool query() const override;
  void synchronize() override;

 private:
  void do_copy(void* to, const void* from, Bytes size, CopyKind kind) override;
  void do_copy_batch(std::span<const CopyItem> items, CopyKind kind) override;
  void do_fill(void* to, std::byte value, Bytes size) override;
  void do_call(std::string operation, std::function<void()> function) override;
  void do_record(Event& event) override;
  void do_wait(const Event& event) override;

  int device_;
  std::string name_;
  cudaStream_t handle_;
  Ownership ownership_;
  std::shared_ptr<CallErrors> errors_;
  // The columns of a batch; kept so that a warm stream allocates nothing.
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> sizes_;
};

}  // namespace spillway::detail
