/// Which process runs, and what a child made by fork() must not touch.
///
/// fork() copies memory but only the calling thread. In the child a mutex may stay locked for ever,
/// nobody runs what is queued, and destroying a thread or a condition variable waits for threads
/// that do not exist there.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace spillway {

/// A process among those that descend from each other by fork(): equal in the process that took
/// it, different in each of its children and in theirs. Costs one load, no system call.
/// Threads: any.
class ProcessId {
 public:
  [[nodiscard]] static ProcessId current() noexcept;
  [[nodiscard]] bool is_current() const noexcept { return *this == current(); }

  friend bool operator==(ProcessId, ProcessId) noexcept = default;

 private:
  explicit ProcessId(std::uint64_t number) noexcept : number_(number) {}

  std::uint64_t number_;
};

/// Holds a T that only the process that made it destroys; a child leaks it.
template <typename T>
class ProcessOwned {
 public:
  template <typename... Arguments>
  explicit ProcessOwned(Arguments&&... arguments) : value_(std::forward<Arguments>(arguments)...) {}
  ProcessOwned(const ProcessOwned&) = delete;
  ProcessOwned& operator=(const ProcessOwned&) = delete;
  ~ProcessOwned() {
    if (in_its_process()) std::destroy_at(&value_);
  }

  [[nodiscard]] bool in_its_process() const noexcept { return process_.is_current(); }

  [[nodiscard]] T& operator*() noexcept { return value_; }
  [[nodiscard]] const T& operator*() const noexcept { return value_; }
  [[nodiscard]] T* operator->() noexcept { return &value_; }
  [[nodiscard]] const T* operator->() const noexcept { return &value_; }

 private:
  ProcessId process_ = ProcessId::current();
  union {
    T value_;
  };
};

/// Moves an object to where nothing ever destroys it: in a child, what only its parent may.
template <typename T>
void leak(T&& object) {
  (void)new std::remove_reference_t<T>(std::forward<T>(object));
}

/// The same on the heap, for std::shared_ptr: deletes in the process that made the deleter.
class DeleteInProcess {
 public:
  template <typename T>
  void operator()(T* object) const noexcept {
    if (process_.is_current()) delete object;
  }

 private:
  ProcessId process_ = ProcessId::current();
};

}  // namespace spillway
