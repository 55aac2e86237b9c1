#include <utility>

#include <c10/util/Exception.h>

#include "spillway/core/error.hpp"
#include "torch/execute/session_core.hpp"

namespace spillway {

// While a stream is captured into a CUDA graph, waits for events from outside of the capture and
// everything that asks the device end the capture with an error. So the session does nothing then.

void SessionCore::note_capture() {
  count_fallback("a stream was being captured in a CUDA graph: left to autograd");
  if (std::exchange(warned_capture_, true)) return;
  TORCH_WARN(
      "[capture] a CUDA graph is captured within a session: what is saved meanwhile stays on the "
      "device, as without a session, for as long as the graph needs it. The session goes on after "
      "the capture and counts such tensors in its report. This warning appears once per session.");
}

at::Tensor SessionCore::unpack_captured(SavedBuffer& buffer, const TensorWindow& window) {
  const std::lock_guard lock(mutex_);
  const bool complete = buffer.on_device() && buffer.state != BufferState::kReloading;
  if (complete && buffer.shard == nullptr) {
    note_capture();
    // The graph will read this address whenever it is launched.
    if (is_in_window(buffer.state)) machine_.keep(buffer);
    return window.on(buffer.storage);
  }
  const char* const found = buffer.shard != nullptr ? "sharded"
                            : buffer.verify || buffer.action == ActionKind::kRecompute
                                ? "to be recomputed"
                                : "offloaded";
  throw InvalidArgument(
      "unpack",
      "a stream is being captured in a CUDA graph, and its backward pass reads a buffer of " +
          to_string(Bytes(buffer.bytes)) + " that is " + found +
          " since a forward pass before the capture; capture both passes, or run that "
          "forward pass outside of the session's steps");
}

void SessionCore::drop_deferred() {
  for (auto& [buffer, id] : std::exchange(deferred_drops_, {})) {
    try {
      if (id >= 0) note_gone(*buffer->pass, id);
      drop_locked(std::move(buffer));
    } catch (...) {
      note_failure("dropping a saved tensor");  // The others are dropped all the same.
    }
  }
}

}  // namespace spillway
