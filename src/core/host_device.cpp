#include "spillway/core/host_device.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "host_queue.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/process.hpp"

namespace spillway {
namespace {

constexpr std::align_val_t kAlignment{512};

class HostEvent final : public Event {
 public:
  explicit HostEvent(Timing timing) : timing_(timing) {}

  [[nodiscard]] bool query() const override { return recorded_ == nullptr || recorded_->done(); }

  void synchronize() const override {
    // Held: a child of fork() must not destroy what a thread of its parent waits on.
    const std::shared_ptr<const HostPoint> point = recorded_;
    if (point == nullptr) return;
    if (const HostFailureRef failure = point->wait()) failure->raise();
  }

  [[nodiscard]] Nanoseconds elapsed_since(const Event& start) const override {
    const auto& from = dynamic_cast<const HostEvent&>(start);
    return time() - from.time();
  }

  void set(std::shared_ptr<HostPoint> point) { recorded_ = std::move(point); }
  [[nodiscard]] std::shared_ptr<const HostPoint> recorded() const { return recorded_; }

  [[nodiscard]] Nanoseconds time() const {
    if (timing_ == Timing::kOff || recorded_ == nullptr) {
      throw InvalidArgument("elapsed", timing_ == Timing::kOff
                                           ? "the event keeps no time; make it with Timing::kOn"
                                           : "the event was never recorded; record it first");
    }
    if (!recorded_->done()) {
      throw DeviceError("elapsed", "the event is not done yet; synchronize it first");
    }
    return recorded_->time();
  }

 private:
  Timing timing_;
  std::shared_ptr<HostPoint> recorded_;
};

class HostStream final : public Stream {
 public:
  HostStream(std::uint64_t id, std::shared_ptr<HostQueue> queue)
      : Stream(id), queue_(std::move(queue)) {}

  [[nodiscard]] bool query() const override { return queue_->idle(); }
  void synchronize() override { queue_->synchronize(); }

 private:
  void do_copy(void* to, const void* from, Bytes size, CopyKind /*kind*/) override {
    queue_->run("copy", [to, from, size] { std::memcpy(to, from, size.count()); });
  }
  void do_fill(void* to, std::byte value, Bytes size) override {
    queue_->run("fill",
                [to, value, size] { std::memset(to, std::to_integer<int>(value), size.count()); });
  }
  void do_call(std::string operation, std::function<void()> function) override {
    queue_->run(std::move(operation), std::move(function));
  }
  void do_record(Event& event) override { dynamic_cast<HostEvent&>(event).set(queue_->record()); }
  void do_wait(const Event& event) override {
    queue_->wait(dynamic_cast<const HostEvent&>(event).recorded());
  }

  std::shared_ptr<HostQueue> queue_;
};

}  // namespace

Nanoseconds host_time(const Event& event) { return dynamic_cast<const HostEvent&>(event).time(); }

HostDevice::HostDevice(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

HostDevice::~HostDevice() = default;

std::unique_ptr<Stream> HostDevice::make_stream(std::string name) {
  const std::shared_ptr<HostQueue> queue(new HostQueue(std::move(name), clock_), DeleteInProcess());
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_, [](const auto& each) { return each.expired(); });
  queues_.push_back(queue);
  return std::make_unique<HostStream>(next_stream_++, queue);
}

std::unique_ptr<Event> HostDevice::make_event(Timing timing) {
  return std::make_unique<HostEvent>(timing);
}

void HostDevice::synchronize() {
  std::vector<std::shared_ptr<HostQueue>> queues;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : queues_) {
      if (auto queue = each.lock()) queues.push_back(std::move(queue));
    }
  }
  std::exception_ptr first;
  for (const auto& queue : queues) {
    try {
      queue->synchronize();
    } catch (const Error&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

std::byte* HostDevice::do_allocate(Bytes size) {
  try {
    return static_cast<std::byte*>(::operator new(size.count(), kAlignment));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("allocate", to_string(size) +
                                      " wanted on the host device, but the machine has no more; "
                                      "use smaller buffers or close other programs");
  }
}

void HostDevice::do_deallocate(std::byte* data) noexcept { ::operator delete(data, kAlignment); }

void HostDevice::do_register(std::span<std::byte> /*memory*/) {}

void HostDevice::do_unregister(std::byte* /*data*/) noexcept {}

}  // namespace spillway
