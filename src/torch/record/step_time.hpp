/// How long a step took on the device, without waiting for it; internal. Under the session's lock.
#pragma once

#include <exception>
#include <optional>

#include "torch/device/torch_device.hpp"

namespace spillway {

/// Measures one step at a time: while the marks of one have not happened, others go unmeasured.
class StepTime {
 public:
  explicit StepTime(TorchDevice& device) : device_(&device) {}

  void begin() noexcept {
    if (ended_) return;
    begin_ = mark();
  }
  void end() noexcept {
    if (!begin_ || ended_) return;
    end_ = mark();
    ended_ = end_.has_value();
    if (!ended_) begin_.reset();
  }
  /// Discards the measurement of the current step; that of an earlier one stays.
  void discard() noexcept {
    if (!ended_) begin_.reset();
  }
  /// Discards all measurements.
  void forget() noexcept {
    begin_.reset();
    end_.reset();
    ended_ = false;
  }

  /// The time of a step that the device has finished; else empty. `wait`: blocks until it has.
  [[nodiscard]] std::optional<Nanoseconds> take(bool wait) noexcept {
    if (!ended_) return std::nullopt;
    try {
      if (!wait && !device_->has_happened(*end_)) return std::nullopt;
      const Nanoseconds time = device_->elapsed(*begin_, *end_);
      forget();
      return time;
    } catch (const std::exception&) {
      forget();
      return std::nullopt;
    }
  }

 private:
  [[nodiscard]] std::optional<TimeMark> mark() noexcept {
    try {
      return device_->mark();
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  TorchDevice* device_;
  std::optional<TimeMark> begin_;
  std::optional<TimeMark> end_;
  bool ended_ = false;
};

}  // namespace spillway
