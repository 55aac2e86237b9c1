/// An operation between ranks that was started and may still be under way.
#pragma once

#include <memory>

namespace spillway {

/// Move-only. Keeps the tensors of its operation alive until it is done.
/// Dropped without wait(): the operation goes on and its tensors live until it is done; dropping
/// never blocks. A failure after that is not reported, and a CUDA tensor that travels through host
/// memory gets its result in wait() only.
/// Threads: one at a time.
class Pending {
 public:
  /// Nothing is under way.
  Pending() noexcept;
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending();

  /// Returns when the tensors may be used again: on the CPU when the operation is done, on CUDA
  /// when the current stream waits for it (the host does not). Later calls return at once.
  /// Errors: CommunicationError after the timeout of the world that made the group, or when the
  /// operation failed.
  void wait();

  /// Whether wait() would return, or throw, at once. Does not block. (gloo knows of sends and
  /// receives only in wait().)
  [[nodiscard]] bool done() const;

  class State;
  explicit Pending(std::unique_ptr<State> state) noexcept;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace spillway
