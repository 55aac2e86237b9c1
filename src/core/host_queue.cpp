#include "host_queue.hpp"

#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {

void HostPoint::finish(std::exception_ptr error, Nanoseconds time) {
  // Notified under the lock: a waiter may destroy this point as soon as it sees `done_`.
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  time_ = time;
  done_ = true;
  finished_.notify_all();
}

bool HostPoint::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr HostPoint::wait() const {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return done_; });
  return error_;
}

Nanoseconds HostPoint::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

HostQueue::HostQueue(std::string name, std::shared_ptr<const Clock> clock)
    : name_(std::move(name)), clock_(std::move(clock)), thread_([this] { work(); }) {}

HostQueue::~HostQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void HostQueue::push(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
  }
  wake_.notify_one();
}

void HostQueue::run(std::string operation, std::function<void()> function) {
  push(Task{std::move(operation), std::move(function)});
}

std::shared_ptr<HostPoint> HostQueue::record() {
  auto point = std::make_shared<HostPoint>();
  push(Record{point});
  return point;
}

void HostQueue::wait(std::shared_ptr<const HostPoint> point) { push(Wait{std::move(point)}); }

bool HostQueue::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !running_;
}

void HostQueue::synchronize() {
  const std::exception_ptr error = record()->wait();
  if (error == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (error_ == error) error_ = nullptr;
  }
  std::rethrow_exception(error);
}

void HostQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      Operation operation = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      lock.unlock();
      std::visit([this](auto& each) { execute(each); }, operation);
    }
    lock.lock();
    running_ = false;
  }
}

void HostQueue::execute(Task& task) {
  if (error() != nullptr) return;
  try {
    task.function();
  } catch (const std::exception& cause) {
    fail(std::make_exception_ptr(
        DeviceError(task.operation, "failed on stream \"" + name_ + "\": " + cause.what())));
  } catch (...) {
    fail(std::make_exception_ptr(
        DeviceError(task.operation, "failed on stream \"" + name_ + "\" with an unknown error")));
  }
}

void HostQueue::execute(Record& record) { record.point->finish(error(), clock_->now()); }

void HostQueue::execute(Wait& wait) {
  if (std::exception_ptr cause = wait.point->wait(); cause != nullptr) fail(std::move(cause));
}

void HostQueue::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = std::move(error);
}

std::exception_ptr HostQueue::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace spillway
