/// Measures how fast bytes move between a device and the host: bare copies and the engine's, over
/// the same memory, each way alone and both ways at once.
///
/// Bare copies are the upper limit: pinned memory, copies back to back on one stream per direction,
/// nothing else. The engine's side is used as a training step uses it: sources are
/// released and buffers reloaded through windows, all on one compute stream.
/// Every round checks a sample of what came back, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "spillway/core/device.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/engine.hpp"

namespace spillway::app {

/// What one round moves, in each direction: `blocks` copies of `block` bytes, from block `first` of
/// the area on (modulo the number of blocks).
struct LinkRound {
  Bytes block;
  std::uint64_t blocks = 0;
  std::uint64_t first = 0;
  /// How many bytes may be on their way before the compute stream has to wait.
  Bytes window;

  [[nodiscard]] Bytes total() const noexcept { return block * blocks; }
};

/// The round that moves as much of `area` as `most_blocks` allow, beginning where the round before
/// (`turn` - 1) ended, so that rounds walk over the whole area.
/// Errors: InvalidArgument if a block is not a multiple of 4 KiB or larger than the area.
[[nodiscard]] LinkRound make_round(Bytes area, Bytes block, std::uint64_t most_blocks,
                                   std::uint64_t turn);

struct LinkTimes {
  Nanoseconds out{};
  Nanoseconds back{};
  Nanoseconds both{};  ///< For `total()` bytes each way.
};

[[nodiscard]] double gigabytes_per_second(Bytes size, Nanoseconds time) noexcept;

class LinkTest {
 public:
  /// Takes twice `area` of device memory and twice `area` of pinned host memory. Slow.
  /// Errors: OutOfMemory if there is not that much.
  LinkTest(Device& device, Bytes area);
  LinkTest(const LinkTest&) = delete;
  LinkTest& operator=(const LinkTest&) = delete;
  /// Blocks until nothing queued uses its memory any more, also after an error in a round.
  ~LinkTest();

  /// Blocks until the round is done.
  /// Errors: DeviceError for a failed copy or a wrong byte.
  [[nodiscard]] LinkTimes bare(const LinkRound& round);
  [[nodiscard]] LinkTimes engine(const LinkRound& round);

  [[nodiscard]] Bytes area() const noexcept { return area_; }

 private:
  enum class Send { kNo, kYes };

  template <typename F>
  [[nodiscard]] Nanoseconds timed(F&& work);
  [[nodiscard]] std::vector<Lease> take_blocks(const LinkRound& round);
  void copy_out(const Lease& lease, std::span<const std::byte> from);
  void copy_back(const Lease& lease, std::span<std::byte> to);
  [[nodiscard]] std::vector<Ticket> drive(const LinkRound& round, Send send,
                                          std::vector<Ticket> stored);
  [[nodiscard]] Ticket send_out(std::span<const std::byte> source);

  [[nodiscard]] std::span<std::byte> block_at(const DeviceBuffer& buffer, const LinkRound& round,
                                              std::uint64_t index) const;
  void synchronize();
  void write_source();
  void clear_destination();
  void check_destination(const LinkRound& round, const char* side);

  Device* device_;
  Bytes area_;
  Slab slab_;
  HostTier tier_;
  DeviceBuffer source_;
  DeviceBuffer destination_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> back_;
  TransferEngine engine_;
  std::vector<std::byte> staging_;
};

}  // namespace spillway::app
