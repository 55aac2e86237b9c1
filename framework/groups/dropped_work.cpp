#include "groups/dropped_work.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace spillway {
namespace {

struct Dropped {
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> tensors;
};

class Keeper {
 public:
  Keeper() {
    std::thread([this] { run(); }).detach();
  }

  void keep(Dropped dropped) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(dropped));
    changed_.notify_one();
  }

 private:
  [[noreturn]] void run() {
    while (true) {
      Dropped next = take();
      try {
        next.work->wait();
      } catch (const std::exception&) {  // Its caller dropped it.
        continue;
      }
    }
  }

  Dropped take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    Dropped next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Dropped> waiting_;
};

}  // namespace

void keep_until_done(c10::intrusive_ptr<c10d::Work> work,
                     std::vector<at::Tensor> tensors) noexcept {
  if (work == nullptr) return;
  // Never destroyed: at the end of the process it may still wait for a rank that is gone.
  static auto* keeper = new Keeper;
  keeper->keep({std::move(work), std::move(tensors)});
}

}  // namespace spillway
