/// A device that behaves as badly as its contract allows, by a seed: it holds queued work back and
/// hands it to the inner device in another order than it came in (each stream stays in order and
/// every wait is kept), puts pauses between operations, and fails the chosen copies.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/wrapping_device.hpp"

namespace spillway::testing {

enum class Fault {
  kNone,
  kRefuse,     ///< The call that queues the copy throws; nothing is queued.
  kFailLater,  ///< The copy fails when it runs. Only on an inner HostDevice.
};

struct FaultOptions {
  std::uint64_t seed = 0;
  /// How often, from 0 to 1, a call leaves its operation waiting instead of handing it on.
  double hold_back = 0.7;
  /// How often, from 0 to 1, an operation is preceded by a pause.
  double pause = 0.05;
  /// Asked for every copy, numbered from 0.
  std::function<Fault(std::uint64_t copy)> fault = {};
  /// The registration that fails, numbered from 0, and how many from there on.
  std::optional<std::uint64_t> failing_registration = {};
  std::uint64_t failing_registrations = 1;
};

class FaultyQueue;

class FaultyDevice final : public WrappingDevice {
 public:
  FaultyDevice(Device& inner, FaultOptions options);
  ~FaultyDevice() override;

  /// Starts over with other options; copies are numbered from 0 again.
  void set(FaultOptions options);

  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name) override;
  [[nodiscard]] std::unique_ptr<Event> make_event(Timing timing) override;
  void synchronize() override;
  void do_register(std::span<std::byte> memory) override;

 private:
  friend class FaultyStream;
  friend class FaultyEvent;

  [[nodiscard]] Fault next_fault();
  /// Hands some operations on, in a random order that keeps the contract. All: every one.
  void hand_on(bool all);
  void hand_on_locked(bool all);

  std::recursive_mutex mutex_;
  FaultOptions options_;
  std::mt19937_64 random_;
  std::uint64_t copies_ = 0;
  std::uint64_t registrations_ = 0;
  std::uint64_t next_stream_ = 1;
  std::vector<FaultyQueue*> queues_;
};

}  // namespace spillway::testing
