/// The lock of a session; internal.
///
/// Under Python a thread may come here holding the interpreter's lock, as when the garbage
/// collector frees a graph, while the thread inside wants the interpreter. Two rules keep them
/// apart. Whoever waits gives the interpreter up meanwhile. And storages are let go outside:
/// freeing one that Python has seen takes the interpreter and may run anybody's code, which may
/// well come here again.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/core/Storage.h>

namespace spillway {

class SessionMutex {
 public:
  using Wait = void (*)(std::mutex& mutex);

  /// How to lock a mutex that somebody else has; for the whole process.
  static void set_wait(Wait wait) noexcept { how_to_wait = wait; }

  void lock() {
    if (!mutex_.try_lock()) how_to_wait.load()(mutex_);
  }
  /// Lets go of what free_outside() was given.
  void unlock() {
    const std::vector<c10::Storage> garbage = std::exchange(garbage_, {});
    mutex_.unlock();
  }

  /// Precondition: locked by this thread.
  void free_outside(c10::Storage&& storage) { garbage_.push_back(std::move(storage)); }

 private:
  static void plain_wait(std::mutex& mutex) { mutex.lock(); }

  inline static std::atomic<Wait> how_to_wait{&plain_wait};
  std::mutex mutex_;
  std::vector<c10::Storage> garbage_;
};

}  // namespace spillway
