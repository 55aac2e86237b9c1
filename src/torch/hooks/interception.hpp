/// How tensors that autograd saves reach a session; internal.
///
/// torch asks its default engine for hooks whenever it saves a tensor. install_interception() puts
/// an engine in front of the present one that answers with ours while the asking thread is in a
/// session's step (StepThread), and passes everything else on. It works the same in C++ programs
/// and under Python, and no Python object is made for a saved tensor.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace spillway {

/// One saved tensor that a session manages. Destroyed when autograd no longer needs it.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;
  virtual ~SavedTensor() = default;

  /// The tensor; may be called several times, from any thread.
  [[nodiscard]] virtual at::Tensor unpack() = 0;
};

class Interceptor {
 public:
  /// Takes a tensor over. Called on the thread that runs the forward, without gradients.
  [[nodiscard]] virtual std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor) = 0;

 protected:
  ~Interceptor() = default;
};

/// Once for the process; later calls do nothing.
void install_interception();

/// As the constructor and the destructor of Unmanaged, for callers that cannot nest objects.
void enter_unmanaged() noexcept;
void leave_unmanaged() noexcept;

}  // namespace spillway
