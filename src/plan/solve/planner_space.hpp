/// The decisions open to the planner about one chunk, and their dependencies.
#pragma once

#include <optional>
#include <vector>

#include "plan/policy/decide.hpp"
#include "plan/profile/pass_model.hpp"
#include "plan/recompute/recompute.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// Which actions a buffer may get; rules may leave one only. The planner itself recomputes nothing
/// that leads out of a layer: replays stay within one.
struct BufferOptions {
  bool keep = true;
  bool offload = false;
  bool recompute = false;

  [[nodiscard]] int count() const {
    return static_cast<int>(keep) + static_cast<int>(offload) + static_cast<int>(recompute);
  }
};

/// The options for a value that autograd did not save, when a replay reads it.
struct ValueOptions {
  bool hold = false;
  bool replay = false;   ///< Inside of the layer or group of layers that made it.
  bool offload = false;  ///< If it is an anchor.
};

/// When a call may be replayed, as moments of the pass: for the buffers that may be made from it.
struct CallWindow {
  int earliest = -1;  ///< -1: never.
  int latest = -1;
  int released = -1;  ///< By then everything made from it was dropped.

  void widen(const CallWindow& other);
};

/// What a call reads, each value once.
struct CallRead {
  int value = -1;
  bool crosses = false;  ///< From another layer, or group of layers.
};

struct ChunkSpace {
  const ChunkProfile* chunk = nullptr;
  PassModel model;
  DecidedChunk decided;
  std::vector<BufferOptions> buffers;  ///< By id.
  std::vector<ValueOptions> values;    ///< By id; nothing for saved ones.
  std::vector<CallWindow> windows;     ///< By call.
  std::vector<std::vector<CallRead>>
      reads;  ///< By call, without persistent values and those from outside.
  std::vector<std::int64_t> replay_ns;  ///< By call.
};

/// Keeps a reference to the chunk that was weighed.
/// Errors: as model_of().
[[nodiscard]] ChunkSpace space_of(const Weights& weights);

/// What was decided about one chunk.
struct ChunkChoice {
  std::vector<ActionKind> buffers;  ///< By id.
  std::vector<Request> values;      ///< By id.
  std::vector<bool> shard;          ///< By id: in parts, unless it is recomputed. Empty: nothing.

  bool operator==(const ChunkChoice&) const = default;
};

/// By chunk, as in the profile.
using Choice = std::vector<ChunkChoice>;

/// Every buffer gets `wanted` if that is allowed, else keep, offload or recompute, the first of
/// them that is allowed.
[[nodiscard]] ChunkChoice choose_everywhere(const ChunkSpace& space, ActionKind wanted);

}  // namespace spillway
