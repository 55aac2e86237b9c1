/// How tensors that autograd saves reach a session; internal.
///
/// torch asks its default engine for hooks whenever it saves a tensor. install_interception() puts
/// an engine in front of the present one that answers with ours while the asking thread is in a
/// session's step (StepThread), and passes everything else on. It works the same in C++ programs
/// and under Python, and no Python object is made for a saved tensor.
#pragma once

#include <memory>
#include <vector>

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

// torch makes a new variable of whatever it unpacks with hooks, so a weight that a custom function
// of Python saved would come back without the attributes of its Parameter. Such a save gets no
// hooks; torch asks for them before it says of what, so the function's list is noted when it is
// given.

/// The tensors that a custom function is going to save on this thread, in order: whether each is
/// left to autograd. Replaces an earlier list.
void expect_saves(std::vector<bool> left_to_autograd);

/// As the constructor and the destructor of Unmanaged, for callers that cannot nest objects.
void enter_unmanaged() noexcept;
void leave_unmanaged() noexcept;

/// Sets how to recognise that a custom function is saving now, on this thread; for the whole
/// process. Other saves neither use the list nor advance it.
using IsFunctionSaving = bool (*)();
void set_function_test(IsFunctionSaving test) noexcept;

}  // namespace spillway
