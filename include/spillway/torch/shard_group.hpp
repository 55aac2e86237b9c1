/// Ranks that hold copies of the same buffers, as a session needs them to keep a part each.
///
/// spillway::parallel makes one of a Group (spillway/parallel/shard_group.hpp); a session takes it
/// by Session::set_shard_group().
///
/// Order:   all ranks call the same functions in the same order; a session sees to that. Nobody
///          else may use what they travel over: give a session groups of its own.
/// Threads: one at a time.
/// Errors:  what the implementation throws when another rank does not come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway {

class ShardGroup {
 public:
  /// Bytes that are on their way. Dropped without wait(): they go on, and nobody may rely on them.
  class Gather {
   public:
    Gather() = default;
    Gather(const Gather&) = delete;
    Gather& operator=(const Gather&) = delete;
    virtual ~Gather() = default;

    /// The current stream may use the whole from here on; on the CPU it returns when that is there.
    virtual void wait() = 0;
  };

  /// Words that are on their way.
  class Words {
   public:
    Words() = default;
    Words(const Words&) = delete;
    Words& operator=(const Words&) = delete;
    virtual ~Words() = default;

    /// All ranks' words, by rank. Blocks until every rank has sent its own. Once.
    [[nodiscard]] virtual std::vector<std::uint64_t> read() = 0;
  };

  ShardGroup() = default;
  ShardGroup(const ShardGroup&) = delete;
  ShardGroup& operator=(const ShardGroup&) = delete;
  virtual ~ShardGroup() = default;

  /// This rank's place, 0 to size() - 1.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Starts to put the parts of all ranks one behind the other into `whole`: bytes, contiguous, of
  /// equal sizes. Does not wait for other ranks.
  /// Ordering: after all work now queued on the current stream.
  /// Lifetime: both tensors must stay until wait() has returned and the stream that called it has
  ///           passed that point.
  [[nodiscard]] virtual std::unique_ptr<Gather> gather(at::Tensor whole, at::Tensor part) = 0;

  /// Sends a few words, as many as the others do, from host to host. Does not wait for other ranks
  /// nor for the device.
  [[nodiscard]] virtual std::unique_ptr<Words> exchange(std::span<const std::uint64_t> words) = 0;
};

}  // namespace spillway
