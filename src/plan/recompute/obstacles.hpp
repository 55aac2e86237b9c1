/// What stands in the way of making a buffer again.
#pragma once

#include <string>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// Looks at one call at a time: what it reads is held, lasts or has obstacles of its own.
class Obstacles {
 public:
  /// Keeps a reference to `chunk`. `collectives`: whether they may be repeated.
  Obstacles(const ChunkProfile& chunk, bool collectives)
      : chunk_(chunk), collectives_(collectives) {}

  /// Why the call cannot be repeated; empty if it can.
  [[nodiscard]] std::string of_call(int call) const;
  /// Why the buffer cannot be made again; empty if it can.
  [[nodiscard]] std::string of_buffer(const BufferProfile& buffer) const;

 private:
  [[nodiscard]] bool stops(const std::string& reason) const;

  const ChunkProfile& chunk_;
  bool collectives_;
};

}  // namespace spillway
