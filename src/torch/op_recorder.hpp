/// Follows the operators of a thread's forward pass: which one runs, which one made a storage, and
/// how long each took on the device. Internal.
///
/// Threads: start() and stop() on the thread that is followed; everything else on that thread too.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "storage_pin.hpp"
#include "torch_device.hpp"

namespace spillway {

struct RecordedCall {
  std::string name;
  std::string scope;
  TimeMark begin;
  TimeMark end;
};

class OpRecorder {
 public:
  explicit OpRecorder(TorchDevice& device) : device_(&device) {}
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;
  ~OpRecorder() { stop(); }

  void start();
  void stop() noexcept;

  /// The operator that runs now, as autograd sees it; empty if none does.
  [[nodiscard]] const std::string& current() const;

  /// Which call made this storage: its place in calls(), or -1.
  [[nodiscard]] int maker_of(const c10::StorageImpl* storage) const;

  [[nodiscard]] const std::vector<RecordedCall>& calls() const noexcept { return calls_; }

 private:
  struct Made {
    int call = -1;
    StoragePin pin;  // Keeps the address from being used again.
  };

  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function);
  static void on_end(const at::RecordFunction& function, at::ObserverContext* context);
  void made(const at::Tensor& tensor, int call);

  TorchDevice* device_;
  bool running_ = false;
  at::CallbackHandle handle_ = 0;
  std::vector<int> running_calls_;
  std::vector<RecordedCall> calls_;
  std::unordered_map<const c10::StorageImpl*, Made> makers_;
};

}  // namespace spillway
