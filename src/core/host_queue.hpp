/// One worker thread with a queue in order; internal to the host device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "spillway/core/clock.hpp"
#include "spillway/core/process.hpp"

namespace spillway {

/// What went wrong first on a queue. A value shared between threads, made into an exception where
/// it is thrown: a thread sanitizer cannot follow an exception object through threads.
struct HostFailure {
  std::string operation;
  std::string detail;

  [[noreturn]] void raise() const;
};
using HostFailureRef = std::shared_ptr<const HostFailure>;

/// The state of one record of one event. Shared by the event, the recording queue and all waiters,
/// so that recording the event again does not touch those who wait for the old point.
class HostPoint {
 public:
  void finish(HostFailureRef failure, Nanoseconds time);
  [[nodiscard]] bool done() const;
  /// Blocks until finished; returns the failure, if any.
  [[nodiscard]] HostFailureRef wait() const;
  /// Precondition: done().
  [[nodiscard]] Nanoseconds time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool done_ = false;
  HostFailureRef failure_;
  Nanoseconds time_{};
};

/// In a child made by fork() nothing runs: what is queued there is discarded, its points fail at
/// once, and the queue must be leaked (DeleteInProcess).
class HostQueue {
 public:
  HostQueue(std::string name, std::shared_ptr<const Clock> clock);
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;
  /// Runs what is queued, then ends the thread.
  ~HostQueue();

  void run(std::string operation, std::function<void()> function);
  [[nodiscard]] std::shared_ptr<HostPoint> record();
  void wait(std::shared_ptr<const HostPoint> point);
  [[nodiscard]] bool idle() const;
  /// Waits for what is queued now; throws the queue's failure and clears it.
  void synchronize();

 private:
  struct Task {
    std::string operation;
    std::function<void()> function;
  };
  struct Record {
    std::shared_ptr<HostPoint> point;
  };
  struct Wait {
    std::shared_ptr<const HostPoint> point;
  };
  using Operation = std::variant<Task, Record, Wait>;

  void push(Operation operation);
  void work();
  void execute(Task& task);
  void execute(Record& record);
  void execute(Wait& wait);
  void finished();
  [[nodiscard]] std::string failure_prefix() const { return "failed on stream \"" + name_ + "\""; }
  void fail(HostFailureRef failure);
  [[nodiscard]] HostFailureRef failure() const;

  ProcessId process_ = ProcessId::current();
  std::string name_;
  std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Operation> queue_;
  std::uint64_t unfinished_ = 0;  // Queued or running.
  bool stop_ = false;
  HostFailureRef failure_;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace spillway
