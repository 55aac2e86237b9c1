/// What prevents the recomputation of a buffer.
#pragma once

#include <string>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// Judges one call at a time: each of its inputs is an anchor, persistent, or has obstacles of its
/// own.
class Obstacles {
 public:
  /// Keeps a reference to `chunk`. `collectives`: whether they may be repeated.
  Obstacles(const ChunkProfile& chunk, bool collectives)
      : chunk_(chunk), collectives_(collectives) {}

  /// Why the call cannot be repeated; empty if it can.
  [[nodiscard]] std::string of_call(int call) const;
  /// Why the buffer cannot be recomputed; empty if it can.
  [[nodiscard]] std::string of_buffer(const BufferProfile& buffer) const;

 private:
  [[nodiscard]] bool stops(const std::string& reason) const;

  const ChunkProfile& chunk_;
  bool collectives_;
};

}  // namespace spillway
