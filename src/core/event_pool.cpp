#include "spillway/core/event_pool.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace spillway {

struct EventPool::State {
  Device* device = nullptr;
  Timing timing = Timing::kOff;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Event>> idle;
  std::size_t made = 0;
};

EventPool::EventPool(Device& device, Timing timing) : state_(std::make_shared<State>()) {
  state_->device = &device;
  state_->timing = timing;
}

EventRef EventPool::take() {
  std::unique_ptr<Event> event;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->idle.empty()) {
      event = std::move(state_->idle.back());
      state_->idle.pop_back();
    } else {
      event = state_->device->make_event(state_->timing);
      // Room for every event ever made: giving one back must not throw.
      state_->idle.reserve(++state_->made);
    }
  }
  return {event.release(), [state = state_](Event* done) {
            const std::lock_guard lock(state->mutex);
            state->idle.emplace_back(done);
          }};
}

std::size_t EventPool::made() const {
  const std::lock_guard lock(state_->mutex);
  return state_->made;
}

}  // namespace spillway
