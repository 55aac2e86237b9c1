/// Ties a step to the thread that began it; internal.
///
/// The thread finds the step through a thread-local that cannot dangle: it shares this object with
/// the session, and end() takes effect from whatever thread it is called. The thread notices when
/// it saves a tensor or calls an operator next, cleans up what is its own, and goes on with
/// autograd alone. A child made by fork() is in no step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "spillway/core/process.hpp"

namespace spillway {

class CallListener;
class Interceptor;
class ScopeSource;

class StepThread {
 public:
  /// The session whose step it is: pointers are used only while `owner` is locked.
  struct Session {
    std::weak_ptr<void> owner;
    Interceptor* interceptor = nullptr;
    CallListener* listener = nullptr;              ///< Null: operators are not recorded.
    bool scopes = false;                           ///< Scopes are tracked.
    std::weak_ptr<ScopeSource> scope_source = {};  ///< Null: Scope alone names scopes.
  };

  /// The session of a step, alive as long as this is.
  struct Locked {
    std::shared_ptr<void> owner;  ///< Null: it is gone; do not use the rest.
    Interceptor* interceptor = nullptr;
    CallListener* listener = nullptr;
  };

  /// Begins a step on this thread. Precondition: it is in none.
  [[nodiscard]] static std::shared_ptr<StepThread> begin(Session session);
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;
  ~StepThread() = default;

  /// From any thread; again: does nothing.
  void end() noexcept;

  /// Whether this thread began the step, and it has not ended.
  [[nodiscard]] bool is_here() const noexcept { return t_step == this && open(); }
  /// Nothing belongs to the step any more: it has ended, or its thread has.
  [[nodiscard]] bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }

  /// The step that this thread is in; null: none. Valid until this thread begins or leaves one.
  [[nodiscard]] static StepThread* current() noexcept {
    if (t_step == nullptr) return nullptr;
    if (t_step->open()) return t_step;
    leave();
    return nullptr;
  }
  [[nodiscard]] Locked lock() const {
    return {session_.owner.lock(), session_.interceptor, session_.listener};
  }

  /// Unique in the process.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] bool tracks_scopes() const noexcept { return session_.scopes; }
  [[nodiscard]] std::shared_ptr<ScopeSource> scope_source() const noexcept {
    return session_.scope_source.lock();
  }

 private:
  /// Leaves the thread's step where the thread ends.
  struct ThreadEnd {
    ~ThreadEnd();
    std::shared_ptr<StepThread> step;
    std::uint64_t callback = 0;  // Of start_recording_calls(); 0: none.
  };

  StepThread(Session session, std::uint64_t number)
      : session_(std::move(session)), number_(number) {}

  [[nodiscard]] bool open() const noexcept { return !is_over() && process_.is_current(); }
  static void leave() noexcept;
  static ThreadEnd& thread_end();

  // Not an object: it can be read until the very end of a thread. ThreadEnd holds the object.
  static thread_local constinit inline StepThread* t_step = nullptr;

  Session session_;
  std::uint64_t number_;
  ProcessId process_ = ProcessId::current();
  std::atomic<bool> over_ = false;
};

}  // namespace spillway
