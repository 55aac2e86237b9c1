/// What the engine knows of buffers and passes. Ports derive their own from these: a session's have
/// storages and tickets, a simulated step's have moments of a profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/buffer_state.hpp"
#include "spillway/core/bytes.hpp"

namespace spillway {

/// One saved buffer, or an anchor of replays.
struct BufferRecord {
  BufferState state = BufferState::kResident;
  bool prefetched = false;     ///< Its reload began before it was needed; until it is freed.
  bool read = false;           ///< Backward has read the original in place.
  std::int64_t footprint = 0;  ///< Bytes that it takes on the device while it is there.
  int offload = -1;            ///< Its position among the offloads of its pass.
  std::int64_t before = 0;     ///< Bytes of the offloads before it.
  std::uint64_t entry = 0;     ///< In the offload window; 0: none.
};

/// The last offloads of a pass whose backward follows at once: their copies are skipped.
struct PassTail {
  int first = std::numeric_limits<int>::max();  ///< Position of the first one among the offloads.
  std::int64_t before = 0;                      ///< Bytes offloaded before it.

  [[nodiscard]] bool empty() const noexcept { return first == std::numeric_limits<int>::max(); }
  friend bool operator==(const PassTail&, const PassTail&) = default;
};

/// One pass of a step.
struct PassRecord {
  PassTail tail;  ///< Expected, from the step before.
  int offloads = 0;
  std::int64_t offloaded = 0;  ///< Bytes.
  bool backward_begun = false;
  bool reloads_queued = false;
  bool gathers_started = false;    ///< Those that begin with its backward have begun.
  std::size_t gathers_begun = 0;   ///< Of its shards.
  std::size_t gathers_wanted = 0;  ///< Of its shards, up to the last one that backward has read.
};

/// The part that this rank has of a sharded buffer.
enum class PartState : std::uint8_t {
  kHere,     ///< On the device.
  kCopying,  ///< The same; its copy out is queued.
  kAway,     ///< In its tier.
  kGone,     ///< The buffer was gathered, or nobody needs it any more.
};

enum class ShardState : std::uint8_t {
  kAsked,      ///< Not known yet whether all ranks have saved it: the whole buffer is kept.
  kInParts,    ///< Each rank has its part.
  kGathering,  ///< Its all-gather has begun.
  kWhole,      ///< The whole buffer is on the device.
};

/// One sharded buffer. It may live longer than the buffer: another rank may gather it.
struct ShardRecord {
  ShardState state = ShardState::kAsked;
  PartState part = PartState::kHere;
  int item = -1;               ///< The buffer's number in its pass.
  std::int64_t size = 0;       ///< Bytes of the buffer.
  std::int64_t part_size = 0;  ///< Bytes of the part on the device.
  std::int64_t gathered = 0;   ///< Bytes of all parts on the device.
};

/// The size of both windows where nothing sets one.
inline constexpr Bytes kDefaultWindow{1ULL << 30U};

/// Limits in bytes of what is under way.
struct EngineLimits {
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max() / 2;

  /// Where passes have no allowances: bytes copied out and not released, and prefetched bytes. 0:
  /// released as soon as they are copied, and one buffer is prefetched at a time.
  std::int64_t offload_window = 0;
  std::int64_t prefetch_window = 0;
  /// Where they have: the same.
  std::int64_t pending_release = kNone;
  std::int64_t prefetch = kNone;
  /// Of sharded buffers, in both cases.
  std::int64_t shard_offload_window = 0;
  std::int64_t shard_prefetch_window = 0;

  /// A limit as it is counted here.
  [[nodiscard]] static constexpr std::int64_t count(Bytes limit) noexcept {
    const std::uint64_t most = kNone;
    return static_cast<std::int64_t>(limit.count() < most ? limit.count() : most);
  }
};

}  // namespace spillway
