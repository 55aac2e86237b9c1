/// One worker thread with a queue in order; internal to the host device.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "spillway/core/clock.hpp"

namespace spillway {

/// The state of one record of one event. Shared by the event, the recording queue and all waiters,
/// so that recording the event again does not touch those who wait for the old point.
class HostPoint {
 public:
  void finish(std::exception_ptr error, Nanoseconds time);
  [[nodiscard]] bool done() const;
  /// Blocks until finished; returns the error, if any.
  [[nodiscard]] std::exception_ptr wait() const;
  /// Precondition: done().
  [[nodiscard]] Nanoseconds time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool done_ = false;
  std::exception_ptr error_;
  Nanoseconds time_{};
};

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
  /// Waits for what is queued now; throws the queue's error and clears it.
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
  void fail(std::exception_ptr error);
  [[nodiscard]] std::exception_ptr error() const;

  std::string name_;
  std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Operation> queue_;
  bool running_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace spillway
