#include "comm/mpi/engine.hpp"

#include <algorithm>
#include <cstdio>

#include <sched.h>

#include "spillway/groups/error.hpp"

namespace spillway::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/// What a waiting thread does between two polls.
class Patience {
 public:
  void pause() {
    ++looks_;
    if (looks_ < kYields) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(interval_);
    interval_ = std::min(interval_ * 2, kLongest);
  }

 private:
  static constexpr int kYields = 500;
  static constexpr microseconds kLongest{500};
  int looks_ = 0;
  microseconds interval_{20};
};

std::string seconds_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1e3);
  return text;
}

}  // namespace

Engine::Engine(std::chrono::milliseconds timeout) : timeout_(timeout), thread_([this] { run(); }) {}

Engine::~Engine() { close(); }

void Engine::start(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  active_.push_back(operation);
  changed_.notify_one();
}

void Engine::require_open(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw CommunicationError(operation, "the world has ended; use groups before that");
}

bool Engine::advance() {
  const std::unique_lock advancing(advancing_, std::try_to_lock);
  if (!advancing) return false;
  std::vector<std::shared_ptr<Operation>> operations;
  {
    const std::lock_guard lock(mutex_);
    operations = active_;
  }
  bool moved = false;
  bool ended = false;
  for (const auto& operation : operations) {
    moved |= operation->advance();
    ended |= operation->finished();
  }
  if (ended) {
    const std::lock_guard lock(mutex_);
    const auto alive = std::stable_partition(active_.begin(), active_.end(),
                                             [](const auto& each) { return !each->finished(); });
    std::copy_if(alive, active_.end(), std::back_inserter(failed_),
                 [](const auto& each) { return each->failed(); });
    active_.erase(alive, active_.end());
  }
  return moved;
}

void Engine::wait(const Operation& operation, std::chrono::milliseconds limit) {
  if (limit.count() == 0) limit = timeout_;
  const Clock::time_point begin = Clock::now();
  Patience patience;
  while (!operation.finished()) {
    advance();
    if (operation.finished()) break;
    if (limit.count() > 0 && Clock::now() - begin > limit) {
      const std::lock_guard advancing(advancing_);
      if (operation.finished()) break;
      throw CommunicationError(operation.name(),
                               operation.missing() + " within " + seconds_text(limit) +
                                   "; it hangs, has ended, or is at another operation; raise the "
                                   "timeout if it may take longer");
    }
    patience.pause();
  }
  operation.rethrow();
}

void Engine::drain() {
  while (true) {
    std::shared_ptr<Operation> next;
    {
      const std::lock_guard lock(mutex_);
      if (!active_.empty()) next = active_.front();
    }
    if (next == nullptr) return;
    wait(*next, {});
    advance();  // Takes it from the list.
  }
}

void Engine::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Engine::run() {
  constexpr std::chrono::microseconds kPollInterval{500};
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !active_.empty(); });
      if (closed_) return;
    }
    if (!advance()) std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace spillway::mpi
