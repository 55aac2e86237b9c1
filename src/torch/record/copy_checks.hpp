/// Compares offloaded buffers with what autograd saved, by digests on the device; internal.
///
/// Nothing waits for the device until read(). Called under the session's lock. The memory for
/// digests is allocated once, so that steps that check need no more than others.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "torch/device/byte_range.hpp"

namespace spillway {

/// What a difference between two digests means.
enum class CopyFault {
  kSourceChanged,  ///< The original was written after its save, while somebody held it.
  kCopyDiffers,    ///< What came back is not what was saved.
};

[[nodiscard]] std::string_view to_string(CopyFault fault);

class CopyChecks {
 public:
  /// The place of a digest. Valid until read().
  using Slot = int;
  static constexpr Slot kNone = -1;

  /// Identifies a buffer over all passes of a step; `buffer` is -1 if the plan does not know it.
  struct Key {
    int chunk = 0;
    int buffer = -1;
    std::size_t bytes = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };

  struct Failure {
    Key key;
    CopyFault fault{};

    friend bool operator==(const Failure&, const Failure&) = default;
  };

  /// What autograd saved of a buffer: only that has to come back as it was.
  struct Part {
    ByteRange bytes;
    Slot saved = kNone;       ///< Digest when it was saved; none: it is not moved.
    Slot at_release = kNone;  ///< Of the original then.
  };

  /// Allocates memory for the digests of a step on `device`, if there is none yet.
  void prepare(at::Device device);

  /// A free slot, and the number to write a digest into.
  struct Number {
    Slot slot = kNone;
    at::Tensor number;
  };
  [[nodiscard]] Number take(at::Device device);

  /// `now`: none is a difference.
  void expect_equal(const Key& key, CopyFault fault, Slot saved, Slot now) {
    comparisons_.push_back({{key, fault}, saved, now});
  }

  /// Waits for the digests and returns what differs, in the order of calls, a buffer of the plan
  /// once. Frees all slots.
  [[nodiscard]] std::vector<Failure> read();

 private:
  struct Comparison {
    Failure failure;
    Slot saved = kNone;
    Slot now = kNone;
  };
  std::vector<at::Tensor> numbers_;  // Each with kSlots of them.
  Slot taken_ = 0;
  std::vector<Comparison> comparisons_;
};

}  // namespace spillway
