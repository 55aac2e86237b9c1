/// The lock of a session; internal.
///
/// Under Python a thread may lock it while holding the interpreter's lock, as when the garbage
/// collector frees a graph, while the thread inside needs the interpreter. Two rules prevent a
/// deadlock. A thread that waits releases the interpreter meanwhile. And storages and tensors are
/// freed after unlocking: freeing one that Python has seen takes the interpreter and may run
/// arbitrary code, which may lock it again.
#pragma once

#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

namespace spillway {

class SessionMutex {
 public:
  using Wait = void (*)(std::mutex& mutex);

  /// Sets how to lock a mutex that another thread holds; for the whole process.
  static void set_wait(Wait wait) noexcept { how_to_wait = wait; }

  void lock() {
    if (!mutex_.try_lock()) how_to_wait.load()(mutex_);
  }
  /// Frees what free_outside() was given, after unlocking.
  void unlock() {
    const std::vector<c10::Storage> garbage = std::exchange(garbage_, {});
    const std::vector<TensorRef> tensors = std::exchange(tensors_, {});
    mutex_.unlock();
  }

  /// Without memory for the list the storage is never freed. Precondition: locked by this thread.
  void free_outside(c10::Storage&& storage) noexcept {
    try {
      garbage_.push_back(std::move(storage));
    } catch (const std::bad_alloc&) {
      (void)storage.unsafeReleaseStorageImpl();
    }
  }

  /// The same for a tensor.
  void free_outside(c10::intrusive_ptr<c10::TensorImpl>&& tensor) noexcept {
    try {
      tensors_.push_back(std::move(tensor));
    } catch (const std::bad_alloc&) {
      (void)tensor.release();
    }
  }

 private:
  using TensorRef = c10::intrusive_ptr<c10::TensorImpl>;

  static void blocking_wait(std::mutex& mutex) { mutex.lock(); }

  inline static std::atomic<Wait> how_to_wait{&blocking_wait};
  std::mutex mutex_;
  std::vector<c10::Storage> garbage_;
  std::vector<TensorRef> tensors_;
};

}  // namespace spillway
