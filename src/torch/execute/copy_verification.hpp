/// Whether offloaded copies have the bits that were saved; internal. Under the session's lock.
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/execute/stream_order.hpp"
#include "torch/record/copy_checks.hpp"
#include "torch/record/copy_sources.hpp"
#include "torch/record/pass.hpp"

namespace spillway {

class CopyVerification {
 public:
  CopyVerification(TorchDevice& device, StreamOrder& streams)
      : device_(device), streams_(streams) {}

  /// Allocates the memory for digests, if there is none yet.
  void prepare() { checks_.prepare(device_.torch_device()); }
  /// What is saved of the buffer now, too, has to come back. `running`: the stream it was saved on.
  void note_saved(SavedBuffer& buffer, const at::Tensor& tensor, Stream& running);
  /// Before the buffer is moved: digests of what was saved of it so far, queued on its stream.
  void digest_saved(SavedBuffer& buffer);
  /// Before it is released: the same once more.
  void digest_released(SavedBuffer& buffer, const c10::Storage& original);
  /// What else was compared in this step was queued on the stream.
  void note_stream(Stream& stream);
  /// What was released, as long as others hold it.
  [[nodiscard]] CopySources& sources() noexcept { return sources_; }

  /// The buffer has come back, on the running stream. Compares it with what was saved and, if that
  /// was looked at, what the original was at its release: had autograd held it, that is what it
  /// would read.
  void compare(const SavedBuffer& buffer, Stream& running);
  /// Waits for the comparisons of the step.
  [[nodiscard]] std::vector<CopyChecks::Failure> read();

 private:
  TorchDevice& device_;
  StreamOrder& streams_;
  CopyChecks checks_;
  CopySources sources_;
  std::vector<Stream*> digested_on_;  // In this step.

  /// Queued on `stream`, on which the memory may be read now. None: the storage lacks the bytes.
  [[nodiscard]] CopyChecks::Slot digest(const c10::Storage& storage, ByteRange bytes,
                                        Stream& stream);
};

/// The error that says so. `profile` and `plan` name the tensors; each may be null. Precondition:
/// there are failures.
[[nodiscard]] std::exception_ptr error_of(const std::vector<CopyChecks::Failure>& failures,
                                          std::uint64_t step, const Profile* profile,
                                          const Plan* plan);

}  // namespace spillway
