/// Ranks that hold copies of the same buffers, over which a session shards them.
///
/// spillway::parallel makes one of a Group (spillway/parallel/shard_group.hpp); a session takes it
/// by Session::set_shard_group().
///
/// Order:   all ranks call the same functions in the same order; a session ensures that. Nothing
///          else may use the underlying communicator: give a session groups of its own.
/// Threads: one at a time.
/// Errors:  what the implementation throws when another rank does not take part.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway {

class ShardGroup {
 public:
  /// An all-gather under way. If destroyed without wait() it continues, and its result is
  /// undefined.
  class Gather {
   public:
    Gather() = default;
    Gather(const Gather&) = delete;
    Gather& operator=(const Gather&) = delete;
    virtual ~Gather() = default;

    /// The current stream may read the whole from here on; on the CPU it returns when complete.
    virtual void wait() = 0;
  };

  /// An exchange of words under way.
  class Exchange {
   public:
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    virtual ~Exchange() = default;

    /// All ranks' words, by rank. Blocks until every rank has sent its own. Call once.
    [[nodiscard]] virtual std::vector<std::uint64_t> read() = 0;
  };

  ShardGroup() = default;
  ShardGroup(const ShardGroup&) = delete;
  ShardGroup& operator=(const ShardGroup&) = delete;
  virtual ~ShardGroup() = default;

  /// This rank's index, 0 to size() - 1.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Starts an all-gather of the ranks' parts into `whole`, in the order of ranks: contiguous byte
  /// tensors, parts of equal size. Does not wait for other ranks.
  /// Ordering: after all work now queued on the current stream.
  /// Lifetime: both tensors must live until wait() has returned and the stream that called it has
  ///           passed that point.
  [[nodiscard]] virtual std::unique_ptr<Gather> gather(at::Tensor whole, at::Tensor part) = 0;

  /// Sends a few words from host to host, the same number on every rank. Does not wait for other
  /// ranks nor for the device.
  [[nodiscard]] virtual std::unique_ptr<Exchange> exchange(
      std::span<const std::uint64_t> words) = 0;
};

}  // namespace spillway
