/// The CPU's allocator, which runs out of memory on demand.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace spillway::testing {

/// In front of the present allocator as long as it lives. Memory that it handed out may outlive it.
class FailingAllocator final : public c10::Allocator {
 public:
  FailingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this); }
  FailingAllocator(const FailingAllocator&) = delete;
  FailingAllocator& operator=(const FailingAllocator&) = delete;
  ~FailingAllocator() override { c10::SetCPUAllocator(before_); }

  /// Allocations of exactly `bytes` fail from now on; 0: none.
  void fail(std::size_t bytes) { failing_ = bytes; }
  [[nodiscard]] int failures() const { return failures_; }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes != 0 && bytes == failing_) {
      ++failures_;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, as the test wants it");
    }
    return before_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return before_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    before_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* before_;
  std::size_t failing_ = 0;
  int failures_ = 0;
};

}  // namespace spillway::testing
