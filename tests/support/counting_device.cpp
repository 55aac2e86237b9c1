#include "support/counting_device.hpp"

namespace spillway::testing {
namespace {

class CountingEvent final : public Event {
 public:
  CountingEvent(DeviceCalls& calls, std::unique_ptr<Event> inner)
      : calls_(&calls), inner_(std::move(inner)) {}

  [[nodiscard]] bool query() const override {
    ++calls_->queries;
    return inner_->query();
  }
  void synchronize() const override {
    ++calls_->synchronizes;
    inner_->synchronize();
  }
  [[nodiscard]] Nanoseconds elapsed_since(const Event& start) const override {
    return inner_->elapsed_since(*static_cast<const CountingEvent&>(start).inner_);
  }
  [[nodiscard]] Event& inner() const { return *inner_; }

 private:
  DeviceCalls* calls_;
  std::unique_ptr<Event> inner_;
};

class CountingStream final : public Stream {
 public:
  CountingStream(DeviceCalls& calls, std::unique_ptr<Stream> inner)
      : Stream(inner->id()), calls_(&calls), inner_(std::move(inner)) {}

  [[nodiscard]] bool query() const override {
    ++calls_->queries;
    return inner_->query();
  }
  void synchronize() override {
    ++calls_->synchronizes;
    inner_->synchronize();
  }

 private:
  void do_copy(void* to, const void* from, Bytes size, CopyKind kind) override {
    ++calls_->copies;
    inner_->copy(to, from, size, kind);
  }
  void do_copy_batch(std::span<const CopyItem> items, CopyKind kind) override {
    calls_->copies += items.size();
    ++calls_->batches;
    inner_->copy_batch(items, kind);
  }
  void do_fill(void* to, std::byte value, Bytes size) override { inner_->fill(to, value, size); }
  void do_call(std::string operation, std::function<void()> function) override {
    inner_->call(std::move(operation), std::move(function));
  }
  void do_record(Event& event) override {
    ++calls_->records;
    inner_->record(static_cast<CountingEvent&>(event).inner());
  }
  void do_wait(const Event& event) override {
    ++calls_->waits;
    inner_->wait(static_cast<const CountingEvent&>(event).inner());
  }

  DeviceCalls* calls_;
  std::unique_ptr<Stream> inner_;
};

}  // namespace

std::unique_ptr<Stream> CountingDevice::make_stream(std::string name) {
  ++calls_.streams;
  return std::make_unique<CountingStream>(calls_, inner().make_stream(std::move(name)));
}

std::unique_ptr<Event> CountingDevice::make_event(Timing timing) {
  ++calls_.events;
  return std::make_unique<CountingEvent>(calls_, inner().make_event(timing));
}

void CountingDevice::synchronize() {
  ++calls_.synchronizes;
  inner().synchronize();
}

std::byte* CountingDevice::do_allocate(Bytes size) {
  ++calls_.allocations;
  return WrappingDevice::do_allocate(size);
}

void CountingDevice::do_register(std::span<std::byte> memory) {
  ++calls_.registrations;
  WrappingDevice::do_register(memory);
}

void CountingDevice::do_unregister(std::byte* data) noexcept {
  ++calls_.unregistrations;
  WrappingDevice::do_unregister(data);
}

}  // namespace spillway::testing
