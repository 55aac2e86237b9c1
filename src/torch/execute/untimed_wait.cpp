#include "spillway/torch/untimed_wait.hpp"

#include "torch/execute/session_core.hpp"

namespace spillway {

void untimed_wait(const std::function<void()>& wait) {
  if (auto* const session = dynamic_cast<SessionCore*>(current_interceptor())) {
    session->wait_untimed(wait);
  } else {
    wait();
  }
}

}  // namespace spillway
