/// Sharding as far as all ranks of a shard group must agree: whether a step shards, which buffers
/// all of them have saved, and when a forward is over for all; internal.
///
/// The life of a sharded buffer on this rank is ShardMachine's, which buffers may be sharded is
/// ShardVerification's. This class asks the other ranks and tells those two.
///
/// A step is in one mode (ShardMode), which begin_step() finds and end_step() ends. If it shards:
///
///   open(pass)          -> start(buffer)* -> close_forward()        for each forward
///
/// start() copies this rank's part and asks the others, whose answers are read when the next buffer
/// starts: they have normally come by then. A rank that saves less asks on without a buffer until
/// the pass is closed, so that all ask as often as the plan shards. A pass that was not the same on
/// all ranks gathers at once whatever it has sharded.
///
/// Order:   set_group(), begin_step(), start(), close_forward() and end_step() communicate, so all
///          ranks must come to them in the same order. They do because that order follows from the
///          plan, whose digest begin_step() compares, and from forwards: a rank whose forward goes
///          another way still asks as often, but sends other words. What ranks do differently
///          between two of these calls is their own.
/// Waits:   set_group(), begin_step(), end_step() for all ranks; start() and close_forward() for
///          the answers to earlier questions. None waits for the device but set_group() and the end
///          of a step that compares or verifies.
/// Failure: where a rank does not take part, the group throws on the others (ShardGroup): in
///          begin_step(), start() and close_forward() to the caller, whose step fails; at the end
///          of a step it is counted, because gradients are there already. The next begin_step()
///          throws again unless the group works again. A rank that cannot gather (no memory) throws
///          on itself only: the others wait for it until their group's timeout. Where they do not
///          wait on the host, and this one goes on without its backward, gathers of different
///          buffers may meet: the next begin_step() finds that and throws VerificationError on all
///          ranks, and again until there is another group.
/// Threads: one at a time; the session's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/plan/shard.hpp"
#include "spillway/torch/session_report.hpp"
#include "spillway/torch/shard_group.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/execute/stream_order.hpp"
#include "torch/execute/torch_port.hpp"
#include "torch/ranks/shard_agreement.hpp"
#include "torch/ranks/shard_verification.hpp"
#include "torch/record/pass.hpp"
#include "torch/record/session_mutex.hpp"

namespace spillway {

class ShardCoordinator {
 public:
  /// What its session does for it, under the session's lock.
  class Host {
   public:
    virtual void count_fallback(const std::string& reason) = 0;
    /// Counts the exception that is being handled.
    virtual void note_failure(const char* where) noexcept = 0;
    /// So many bytes of the buffer are planned to stay on the device.
    virtual void set_kept_bytes(SavedBuffer& buffer, std::size_t bytes) = 0;
    virtual void start_offload(const std::shared_ptr<SavedBuffer>& buffer) = 0;

   protected:
    ~Host() = default;
  };

  /// What it uses of its session; all of it outlives this.
  struct Parts {
    Host& host;
    TorchDevice& device;
    ShardMachine<TorchPort>& machine;
    StreamOrder& streams;
    SessionMutex& mutex;
    ShardTotals& counts;  // Of the step that runs.
  };

  explicit ShardCoordinator(const Parts& parts) : parts_(parts) {}
  ShardCoordinator(const ShardCoordinator&) = delete;
  ShardCoordinator& operator=(const ShardCoordinator&) = delete;

  /// Between steps. Null, or a group of one rank: nothing is sharded. Measures how fast it gathers.
  void set_group(std::shared_ptr<ShardGroup> group);
  /// 0: there is no group.
  [[nodiscard]] int ranks() const { return group_ != nullptr ? group_->size() : 0; }
  /// Null: there is no group of several ranks.
  [[nodiscard]] ShardGroup* group() const { return ranks() > 1 ? group_.get() : nullptr; }
  /// For predictions.
  [[nodiscard]] ShardModel model() const;

  /// There is a plan: no step has verified it yet.
  void adopt_plan();
  /// Buffers of the plan have other actions than before.
  void set_plan(const Plan& plan);

  /// What this rank may do in the step that begins.
  struct Request {
    bool records = false;
    bool compares = false;  ///< While it records.
    bool verifies = false;
    std::int64_t prefetch_window = 0;
  };
  /// Finds the mode, and returns the prefetch window of sharded buffers that all ranks have in the
  /// step. Empty: there is no group of several ranks.
  [[nodiscard]] std::optional<std::int64_t> begin_step(const Request& request);
  [[nodiscard]] ShardMode mode() const noexcept { return mode_; }

  /// A forward begins.
  void open(const std::shared_ptr<Pass>& pass);
  [[nodiscard]] bool is_open(const Pass& pass) const noexcept { return open_.get() == &pass; }
  /// The pass saves the buffer. Returns true if it will be sharded provided that all ranks have
  /// saved it. Otherwise it is handled as if the plan did not shard it.
  [[nodiscard]] bool start(const std::shared_ptr<SavedBuffer>& buffer);
  /// This rank begins to gather the buffer.
  void note_gather(const ShardedBuffer& shard);
  /// From here on no rank shards anything of the forward that ran last. Before every gather.
  void close_forward();

  /// Compares what the step was to compare, and frees parts of its passes that nobody gathers any
  /// more. Returns the plan without what is not equal on all ranks; empty: the plan stays.
  [[nodiscard]] std::optional<Plan> end_step(const std::vector<std::shared_ptr<Pass>>& passes,
                                             const Plan* plan) noexcept;
  /// The group has failed where nothing can be thrown: counts the exception that is being handled.
  void lose_group() noexcept;

  /// As ShardVerification::equal().
  [[nodiscard]] std::vector<std::vector<bool>> equal(const Profile& profile) const {
    return verification_.equal(profile);
  }
  void forget_equal() noexcept { verification_.forget_equal(); }
  /// `counts`: of the step to be reported. Empty: the session has nothing to do with sharding.
  [[nodiscard]] std::optional<ShardTotals> report(const ShardTotals& counts) const;

 private:
  using BufferRef = std::shared_ptr<SavedBuffer>;
  using ShardRef = std::shared_ptr<ShardedBuffer>;

  void note_no_group();
  [[nodiscard]] at::Tensor digest_of(const SavedBuffer& buffer) const;
  [[nodiscard]] bool may_shard(const SavedBuffer& buffer);
  [[nodiscard]] ShardRef make_part(const BufferRef& buffer) const;
  void copy_part(const SavedBuffer& buffer, ShardedBuffer& shard) const;
  void read_answers(Pass& pass, std::size_t unanswered);
  void settle(Pass& pass, const ShardRef& shard);
  [[nodiscard]] std::optional<Plan> verified(const Plan& plan);
  void free_unless_held(ShardedBuffer& shard) noexcept;

  Parts parts_;
  std::shared_ptr<ShardGroup> group_;
  double speed_ = 0;           // Of gathers, in bytes per second; the same on all ranks.
  std::uint64_t plan_ = 0;     // As in ShardVote.
  std::uint64_t gathers_ = 0;  // As in ShardVote; since there is this group.
  ShardMode mode_ = ShardMode::kNone;
  std::shared_ptr<Pass> open_;  // Its forward runs and may still shard.
  ShardVerification verification_;
  std::vector<std::string> mismatched_;  // With this plan; for the report.
  bool warned_ = false;
};

}  // namespace spillway
