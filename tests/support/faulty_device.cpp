#include "support/faulty_device.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "spillway/core/error.hpp"

namespace spillway::testing {

/// One record of one event: the inner event exists at once, `handed_on` says that the inner stream
/// knows it.
struct FaultyPoint {
  std::unique_ptr<Event> inner;
  bool handed_on = false;
};

/// The operations of one stream that the inner device has not seen yet.
class FaultyQueue {
 public:
  struct Operation {
    std::function<void(Stream&)> hand_on;
    std::shared_ptr<FaultyPoint> needs;  // A wait: not before this was handed on.
  };

  explicit FaultyQueue(std::unique_ptr<Stream> inner) : inner_(std::move(inner)) {}

  void push(Operation operation) { waiting_.push_back(std::move(operation)); }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  [[nodiscard]] bool can_go_on() const {
    return !waiting_.empty() &&
           (waiting_.front().needs == nullptr || waiting_.front().needs->handed_on);
  }
  void hand_on_one() {
    const Operation operation = std::move(waiting_.front());
    waiting_.pop_front();
    operation.hand_on(*inner_);
  }
  [[nodiscard]] Stream& inner() { return *inner_; }

 private:
  std::unique_ptr<Stream> inner_;
  std::deque<Operation> waiting_;
};

class FaultyEvent final : public Event {
 public:
  FaultyEvent(FaultyDevice& device, Timing timing) : device_(&device), timing_(timing) {}

  [[nodiscard]] bool query() const override {
    const std::lock_guard lock(device_->mutex_);
    return point_ == nullptr || (point_->handed_on && point_->inner->query());
  }
  void synchronize() const override {
    if (point_ == nullptr) return;
    device_->hand_on(true);
    point_->inner->synchronize();
  }
  [[nodiscard]] Nanoseconds elapsed_since(const Event& start) const override {
    const std::lock_guard lock(device_->mutex_);
    return inner_event().elapsed_since(static_cast<const FaultyEvent&>(start).inner_event());
  }

  /// Makes a new inner event: one that is queued elsewhere must not move.
  [[nodiscard]] std::shared_ptr<FaultyPoint> new_point() {
    point_ = std::make_shared<FaultyPoint>();
    point_->inner = device_->inner().make_event(timing_);
    return point_;
  }
  [[nodiscard]] std::shared_ptr<FaultyPoint> current() const { return point_; }

 private:
  [[nodiscard]] const Event& inner_event() const {
    if (point_ == nullptr) {
      throw InvalidArgument("elapsed", timing_ == Timing::kOff
                                           ? "the event keeps no time; make it with Timing::kOn"
                                           : "the event was never recorded; record it first");
    }
    if (!point_->handed_on) {
      throw DeviceError("elapsed", "the event is not done yet; synchronize it first");
    }
    return *point_->inner;
  }

  FaultyDevice* device_;
  Timing timing_;
  std::shared_ptr<FaultyPoint> point_;
};

class FaultyStream final : public Stream {
 public:
  FaultyStream(FaultyDevice& device, std::uint64_t id, std::unique_ptr<Stream> inner)
      : Stream(id), device_(&device), queue_(std::move(inner)) {
    const std::lock_guard lock(device_->mutex_);
    device_->queues_.push_back(&queue_);
  }
  ~FaultyStream() override {
    const std::lock_guard lock(device_->mutex_);
    device_->hand_on_locked(true);
    std::erase(device_->queues_, &queue_);
  }

  [[nodiscard]] bool query() const override {
    const std::lock_guard lock(device_->mutex_);
    return queue_.empty() && const_cast<FaultyQueue&>(queue_).inner().query();
  }
  void synchronize() override {
    device_->hand_on(true);
    queue_.inner().synchronize();
  }

 private:
  void push(std::function<void(Stream&)> operation, std::shared_ptr<FaultyPoint> needs = nullptr) {
    const std::lock_guard lock(device_->mutex_);
    std::uniform_real_distribution<double> chance(0, 1);
    if (chance(device_->random_) < device_->options_.pause) {
      const auto pause = std::chrono::microseconds(device_->random_() % 20);
      queue_.push({[pause](Stream& inner) {
                     inner.call("pause", [pause] { std::this_thread::sleep_for(pause); });
                   },
                   nullptr});
    }
    queue_.push({std::move(operation), std::move(needs)});
    if (chance(device_->random_) >= device_->options_.hold_back) device_->hand_on_locked(false);
  }

  void do_copy(void* to, const void* from, Bytes size, CopyKind kind) override {
    switch (device_->next_fault()) {
      case Fault::kNone:
        push([=](Stream& inner) { inner.copy(to, from, size, kind); });
        return;
      case Fault::kRefuse:
        throw DeviceError("copy", "refused, as the test wants it");
      case Fault::kFailLater:
        push([](Stream& inner) {
          inner.call("copy", [] { throw std::runtime_error("as the test wants it"); });
        });
        return;
    }
  }
  void do_copy_batch(std::span<const CopyItem> items, CopyKind kind) override {
    const std::lock_guard lock(device_->mutex_);
    if (device_->options_.fault) {
      Stream::do_copy_batch(items, kind);  // One by one, so that some of them can fail.
      return;
    }
    push([copies = std::vector<CopyItem>(items.begin(), items.end()), kind](Stream& inner) {
      inner.copy_batch(copies, kind);
    });
  }
  void do_fill(void* to, std::byte value, Bytes size) override {
    push([=](Stream& inner) { inner.fill(to, value, size); });
  }
  void do_call(std::string operation, std::function<void()> function) override {
    push([operation = std::move(operation), function = std::move(function)](Stream& inner) {
      inner.call(operation, function);
    });
  }
  void do_record(Event& event) override {
    const std::lock_guard lock(device_->mutex_);
    auto point = static_cast<FaultyEvent&>(event).new_point();
    push([point](Stream& inner) {
      inner.record(*point->inner);
      point->handed_on = true;
    });
  }
  void do_wait(const Event& event) override {
    const std::lock_guard lock(device_->mutex_);
    auto point = static_cast<const FaultyEvent&>(event).current();
    push([point](Stream& inner) { inner.wait(*point->inner); }, point);
  }

  FaultyDevice* device_;
  FaultyQueue queue_;
};

FaultyDevice::FaultyDevice(Device& inner, FaultOptions options)
    : WrappingDevice(inner), options_(std::move(options)), random_(options_.seed) {}

FaultyDevice::~FaultyDevice() = default;

void FaultyDevice::set(FaultOptions options) {
  const std::lock_guard lock(mutex_);
  options_ = std::move(options);
  random_.seed(options_.seed);
  copies_ = 0;
}

std::unique_ptr<Stream> FaultyDevice::make_stream(std::string name) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<FaultyStream>(*this, next_stream_++,
                                        inner().make_stream(std::move(name)));
}

std::unique_ptr<Event> FaultyDevice::make_event(Timing timing) {
  return std::make_unique<FaultyEvent>(*this, timing);
}

void FaultyDevice::synchronize() {
  hand_on(true);
  inner().synchronize();
}

void FaultyDevice::do_register(std::span<std::byte> memory) {
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = registrations_++;
    const std::optional<std::uint64_t> first = options_.failing_registration;
    if (first && number >= *first && number - *first < options_.failing_registrations) {
      throw OutOfMemory("register", "the pages cannot be locked, as the test wants it");
    }
  }
  WrappingDevice::do_register(memory);
}

Fault FaultyDevice::next_fault() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t copy = copies_++;
  return options_.fault ? options_.fault(copy) : Fault::kNone;
}

void FaultyDevice::hand_on(bool all) {
  const std::lock_guard lock(mutex_);
  hand_on_locked(all);
}

void FaultyDevice::hand_on_locked(bool all) {
  std::vector<FaultyQueue*> ready;
  for (std::uint64_t left = all ? ~std::uint64_t{0} : 1 + random_() % 6; left > 0; --left) {
    ready.clear();
    std::copy_if(queues_.begin(), queues_.end(), std::back_inserter(ready),
                 [](const FaultyQueue* queue) { return queue->can_go_on(); });
    // Calls come in an order in which every wait follows its recording, so something can always
    // run.
    if (ready.empty()) return;
    ready[random_() % ready.size()]->hand_on_one();
  }
}

}  // namespace spillway::testing
