/// Host memory for buffers that left the device: one reserved address range whose chunks a
/// background thread pins one after another, handed out in exact sizes.
///
/// Start-up does not wait: the constructor reserves addresses only. The background thread touches
/// each chunk (huge pages where the system has them, on the device's NUMA node) and registers it
/// with the device, touching the next one meanwhile. allocate() chooses its block at once; only
/// when that block lies in a chunk that is not pinned yet does it wait, so a warm slab
/// never waits. trim() gives chunks back that nothing needs; until then they stay pinned.
///
/// Where a chunk cannot be pinned, the slab does with what it has, so allocate() finds no room
/// sooner; retry() tries again. Neither changes the addresses of what fits.
///
/// Threads: all calls may come from any thread. Lifetime: the device outlives the slab, the slab
/// outlives its leases.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/device.hpp"
#include "spillway/core/process.hpp"
#include "spillway/memory/address_range.hpp"
#include "spillway/memory/commit_ahead.hpp"
#include "spillway/memory/lease.hpp"
#include "spillway/memory/offset_allocator.hpp"

namespace spillway {

struct SlabOptions {
  /// The upper limit. Only what is used is ever pinned.
  Bytes capacity;
  /// Pages are touched and registered in steps of this size; a multiple of 2 MiB.
  Bytes chunk{256ULL << 20U};
  /// How much to pin in the background without waiting for the first allocation.
  Bytes prepare{};
};

struct SlabUsage {
  Bytes capacity;         ///< Less than requested as long as no more can be pinned.
  Bytes used;             ///< In leases now.
  Bytes peak;             ///< The most ever in leases at once.
  Bytes footprint;        ///< How far the addresses ever reached; peak plus fragmentation.
  Bytes pinned;           ///< Touched and registered with the device, now.
  std::size_t holes = 0;  ///< Free parts between leases.
  std::uint64_t warm_up_waits = 0;  ///< Times allocate() waited for its chunk to be pinned.
  Nanoseconds pinning_time{};       ///< Time the background thread spent on pinning chunks.
};

class Slab final : public LeaseHome {
 public:
  /// Errors: InvalidArgument for a capacity of zero or a chunk that is no multiple of 2 MiB,
  /// OutOfMemory if the machine has less memory than `capacity` or not enough addresses.
  Slab(Device& device, SlabOptions options);
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  /// Precondition: all leases are returned and no queued work uses their memory. In a child made by
  /// fork() it does nothing.
  ~Slab();

  /// A block aligned to 512 bytes; nothing when there is no room.
  [[nodiscard]] std::optional<Lease> allocate(Bytes size);

  /// Asks the background thread to pin the first `size` bytes (at most the capacity). Returns at
  /// once.
  void prepare(Bytes size);

  /// Gives pinned chunks beyond the first `keep` bytes back to the system, but for those that hold
  /// blocks in use and half a chunk ahead of them: the background thread waits for the last users
  /// of the blocks that were there, then unregisters and frees chunk by chunk, from the end. Blocks
  /// the caller until that is done, so that nothing is unregistered while a CUDA graph is captured.
  /// Call it between steps, with what the next steps are known to need: a block that is handed out
  /// beyond, meanwhile or later, waits until its chunk is pinned again.
  void trim(Bytes keep);

  /// How far into the addresses blocks reached since the last call: what trim() may keep to leave
  /// steps that repeat as they are.
  Bytes take_reach();

  /// Call between steps. If pinning failed, tries again in the background: at the first call, then
  /// after 2, 4, ... up to kMostCallsBetweenRetries calls. Returns at once. Until it succeeds,
  /// problem() stays, and nobody waits for it.
  void retry();
  static constexpr std::uint64_t kMostCallsBetweenRetries = 1024;

  /// Blocks until everything requested so far is pinned.
  /// Errors: OutOfMemory if pages could not be locked; what was pinned before stays usable.
  void wait_until_prepared();

  [[nodiscard]] SlabUsage usage() const;

  /// Why it has less than requested, and what to do; empty if it has not.
  [[nodiscard]] std::string problem() const;

  /// The base of the address range: offsets from here are the same in every run.
  [[nodiscard]] const std::byte* base() const noexcept { return range_.data(); }

  /// For tiers; everyone else uses allocate().
  [[nodiscard]] std::optional<Block> take(Bytes size);
  void put(Block block) noexcept override;

 private:
  /// kPinning -> kFailed: a chunk could not be pinned. kFailed -> kRetrying: retry().
  /// kRetrying -> kFailed or kPinning: whether it could now. Both -> kPinning: trim() wants no more
  /// than is pinned.
  enum class State { kPinning, kFailed, kRetrying };

  void want(Bytes end);
  void work();
  [[nodiscard]] bool has_excess() const;
  void release_excess(std::unique_lock<std::mutex>& lock);
  void pin_next(std::unique_lock<std::mutex>& lock);
  void recover();
  [[nodiscard]] Bytes end_for(Bytes blocks) const;
  /// Touches what is not touched yet of [from, to) and registers it; meanwhile up to `next` is
  /// touched.
  void pin_chunk(Bytes from, Bytes to, Bytes next);
  [[nodiscard]] bool wait_until_pinned(std::unique_lock<std::mutex>& lock, Bytes end);

  Device* device_;
  SlabOptions options_;
  AddressRange range_;

  mutable std::mutex mutex_;
  ProcessOwned<std::condition_variable> work_;  // For the background thread: more to pin, or stop.
  ProcessOwned<std::condition_variable> pinned_changed_;
  ProcessOwned<OffsetAllocator> allocator_;
  Bytes peak_;
  Bytes wanted_;  // Not below the end of a block in use.
  Bytes pinned_;
  Bytes releasing_;  // Beyond pinned_: about to be given back.
  std::uint64_t warm_up_waits_ = 0;
  Nanoseconds pinning_time_{};
  State state_ = State::kPinning;
  std::exception_ptr failure_;  // Unless kPinning.
  std::uint64_t calls_to_retry_ = 0;
  std::uint64_t calls_between_retries_ = 1;
  bool working_ = false;  // The background thread pins or releases, without the lock.
  bool stop_ = false;
  // By chunk. Only for the background thread.
  ProcessOwned<std::vector<HostRegistration>> registrations_;
  // For the background thread, and whoever has the lock while it waits.
  ProcessOwned<CommitAhead> ahead_;
  ProcessOwned<std::thread> thread_;  // Last: it uses all of the above.
};

}  // namespace spillway
