/// Saves that a session leaves to autograd.
#pragma once

namespace spillway {

/// While it lives, what autograd saves on this thread is left to autograd: not profiled, not moved,
/// not recomputed. For code that needs the very tensors it saved. May be nested.
/// Threads: destroyed on the thread that made it. Outside of steps it does nothing.
class Unmanaged {
 public:
  Unmanaged() noexcept;
  Unmanaged(const Unmanaged&) = delete;
  Unmanaged& operator=(const Unmanaged&) = delete;
  ~Unmanaged();
};

}  // namespace spillway
