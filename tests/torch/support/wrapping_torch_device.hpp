/// A TorchDevice in front of the CPU's, for tests that change one answer.
#pragma once

#include <functional>
#include <memory>

#include "torch/device/torch_device.hpp"

namespace spillway::testing {

class WrappingTorchDevice : public TorchDevice {
 public:
  [[nodiscard]] at::Device torch_device() const override { return at::kCPU; }
  [[nodiscard]] Device& device() override { return inner_->device(); }
  [[nodiscard]] Stream& current_stream() override { return inner_->current_stream(); }
  void catch_up(Stream& stream) override { inner_->catch_up(stream); }
  [[nodiscard]] MemoryHold hold(const c10::Storage& storage) override {
    return inner_->hold(storage);
  }
  [[nodiscard]] c10::Storage allocate(std::size_t bytes, Stream& stream) override {
    return inner_->allocate(bytes, stream);
  }
  void beside(Stream& stream, const std::function<void(Stream&)>& work) override {
    inner_->beside(stream, work);
  }
  [[nodiscard]] bool computes_beside() const override { return inner_->computes_beside(); }
  void keep_busy() override { inner_->keep_busy(); }
  void mark(Stream& stream, TimeMark& mark) override { inner_->mark(stream, mark); }
  [[nodiscard]] TimeMark epoch() override { return inner_->epoch(); }
  [[nodiscard]] bool has_happened(const TimeMark& mark) const override {
    return inner_->has_happened(mark);
  }
  [[nodiscard]] Nanoseconds elapsed(const TimeMark& from, const TimeMark& to) override {
    return inner_->elapsed(from, to);
  }
  void digest(const c10::Storage& storage, ByteRange bytes, const at::Tensor& number,
              Stream& stream) override {
    inner_->digest(storage, bytes, number, stream);
  }
  [[nodiscard]] Bytes host_chunk() const override { return inner_->host_chunk(); }
  [[nodiscard]] Bytes peak() const override { return inner_->peak(); }
  Bytes take_peak() override { return inner_->take_peak(); }
  [[nodiscard]] Bytes allocated() const override { return inner_->allocated(); }
  [[nodiscard]] Bytes granularity() const override { return inner_->granularity(); }
  [[nodiscard]] Bytes room() const override { return inner_->room(); }

 protected:
  [[nodiscard]] TorchDevice& inner() { return *inner_; }
  [[nodiscard]] Device& inner_device() { return inner_->device(); }

 private:
  std::unique_ptr<TorchDevice> inner_ = make_torch_device(at::kCPU);
};

}  // namespace spillway::testing
