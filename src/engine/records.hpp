/// What the engine knows of buffers and passes. Ports derive their own from these: a session's have
/// storages and tickets, a simulated step's have moments of a profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/buffer_state.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/engine/residency.hpp"

namespace spillway {

/// One saved buffer, or an anchor of replays.
struct BufferRecord {
  BufferState state = BufferState::kResident;
  bool prefetched = false;     ///< Its reload began before it was needed; until it is freed.
  bool read = false;           ///< Backward has read the original in place.
  std::int64_t footprint = 0;  ///< Bytes that it takes on the device while it is there.
  std::uint64_t entry = 0;     ///< In the offload window; 0: none.
};

/// One pass of a step.
struct PassRecord {
  const Residency* residency = nullptr;  ///< Its list; null: none is known.
  bool copies_all = false;               ///< More than listed was released: holds nothing any more.
  int reload_until = 0;                  ///< How many of its reloads may have begun.
  std::int64_t reserve = 0;              ///< Bytes by which it is larger than profiled.
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

/// Limits in bytes.
struct EngineLimits {
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max() / 2;

  /// Where passes have no list: bytes copied out and not released, and prefetched bytes. 0:
  /// released as soon as they are copied, and one buffer is prefetched at a time.
  std::int64_t offload_window = 0;
  std::int64_t prefetch_window = 0;
  /// Bytes of managed buffers on the device, for passes that have no list, or are larger than
  /// profiled; less their reserve.
  std::int64_t cap = kNone;
  /// Of sharded buffers, in both cases.
  std::int64_t shard_offload_window = 0;
  std::int64_t shard_prefetch_window = 0;

  /// Of a pass.
  [[nodiscard]] std::int64_t cap_of(const PassRecord& pass) const noexcept {
    if (pass.residency != nullptr && pass.reserve == 0) return kNone;
    return cap > pass.reserve ? cap - pass.reserve : 0;
  }

  /// A limit as it is counted here.
  [[nodiscard]] static constexpr std::int64_t count(Bytes limit) noexcept {
    const std::uint64_t most = kNone;
    return static_cast<std::int64_t>(limit.count() < most ? limit.count() : most);
  }
};

/// Limits of one save or unpack, besides the list: what a simulated step is given while the lists
/// of a plan are found.
struct ByteLimit {
  std::int64_t on_device = EngineLimits::kNone;
  std::int64_t under_way = EngineLimits::kNone;  ///< Pending release, or prefetched.
};

}  // namespace spillway
