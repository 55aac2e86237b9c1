/// A process that gets no more threads, as under a limit on them.
#pragma once

#include <cstddef>
#include <limits>

#include <pthread.h>

namespace spillway::testing {

/// While it lives, std::thread throws std::system_error: no address space has room for the stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << (std::numeric_limits<long>::digits - 1));
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

}  // namespace spillway::testing
