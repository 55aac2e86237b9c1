#include "host_queue.hpp"

#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {

void HostFailure::raise() const { throw DeviceError(operation, detail); }

void HostPoint::finish(HostFailureRef failure, Nanoseconds time) {
  // Notified under the lock: a waiter may destroy this point as soon as it sees `done_`.
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  time_ = time;
  done_ = true;
  finished_.notify_all();
}

bool HostPoint::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

HostFailureRef HostPoint::wait() const {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return done_; });
  return failure_;
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
  if (!process_.is_current()) return;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
    ++unfinished_;
  }
  wake_.notify_one();
}

void HostQueue::run(std::string operation, std::function<void()> function) {
  push(Task{std::move(operation), std::move(function)});
}

std::shared_ptr<HostPoint> HostQueue::record() {
  auto point = std::make_shared<HostPoint>();
  if (!process_.is_current()) {
    point->finish(std::make_shared<HostFailure>(HostFailure{
                      "synchronize", "stream \"" + name_ +
                                         "\" has no thread in a process made by fork(); make a "
                                         "device of its own there"}),
                  clock_->now());
    return point;
  }
  push(Record{point});
  return point;
}

void HostQueue::wait(std::shared_ptr<const HostPoint> point) { push(Wait{std::move(point)}); }

bool HostQueue::idle() const {
  if (!process_.is_current()) return true;
  const std::lock_guard lock(mutex_);
  return unfinished_ == 0;
}

void HostQueue::synchronize() {
  const HostFailureRef failure = record()->wait();
  if (failure == nullptr) return;
  if (process_.is_current()) {
    const std::lock_guard lock(mutex_);
    if (failure_ == failure) failure_ = nullptr;
  }
  failure->raise();
}

void HostQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Operation operation = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::visit([this](auto& each) { execute(each); }, operation);
    lock.lock();
  }
}

void HostQueue::execute(Task& task) {
  if (failure() == nullptr) {
    try {
      task.function();
    } catch (const std::exception& cause) {
      fail(std::make_shared<HostFailure>(
          HostFailure{task.operation, failure_prefix() + ": " + cause.what()}));
    } catch (...) {
      fail(std::make_shared<HostFailure>(
          HostFailure{task.operation, failure_prefix() + " with an unknown error"}));
    }
  }
  task.function = nullptr;  // What it holds must be gone before anyone sees that it has run.
  finished();
}

void HostQueue::execute(Record& record) {
  // First: who waits for the point may ask right afterwards whether work is left.
  finished();
  record.point->finish(failure(), clock_->now());
}

void HostQueue::execute(Wait& wait) {
  if (HostFailureRef failure = wait.point->wait()) fail(std::move(failure));
  finished();
}

void HostQueue::finished() {
  const std::lock_guard lock(mutex_);
  --unfinished_;
}

void HostQueue::fail(HostFailureRef failure) {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = std::move(failure);
}

HostFailureRef HostQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace spillway
