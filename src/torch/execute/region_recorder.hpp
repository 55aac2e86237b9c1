/// Forward passes that nothing was planned for, within the memory of device and host; internal.
/// Under the session's lock.
///
/// A step that records, or that waits for its plan, offloads what it saves. Where host memory would
/// not hold all of that, the rest of its forward passes is cut into regions. What a region saves
/// stays on the device until it ends. Then its buffers are recomputed from the region's inputs and
/// compared bit for bit, while the originals are still there. What matches is discarded, and
/// recomputed in backward as under a plan; the inputs that this starts from, and what does not
/// match, are offloaded, and kept where host memory is full. So a step needs no more than gradient
/// checkpointing does.
///
/// A region ends with a layer, by the scopes of its calls, or with the call after which it has
/// taken its share of the budget. The last region of a pass stays as it is: its backward is next.
/// Each buffer is recomputed from the originals of those before it, so only one exists twice.
///
/// A verification step does the same with the recipes of its plan, where host memory would not hold
/// the originals of what the plan recomputes.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "spillway/core/bytes.hpp"
#include "spillway/torch/session_report.hpp"
#include "torch/record/pass.hpp"
#include "torch/record/session_mutex.hpp"
#include "torch/record/storage_watch.hpp"
#include "torch/replay/replay.hpp"

namespace spillway {

class SessionCore;

class RegionRecorder final : public SessionMemory {
 public:
  explicit RegionRecorder(SessionCore& core) : core_(core) {}
  RegionRecorder(const RegionRecorder&) = delete;
  RegionRecorder& operator=(const RegionRecorder&) = delete;
  ~RegionRecorder() override = default;

  /// Whether the step that begins must record calls and scopes for this. After it is known whether
  /// it verifies.
  [[nodiscard]] bool is_needed() const;
  /// After it is known whether the step records. `calls`: they are recorded in it.
  void begin_step(bool calls);
  void end_step() noexcept;
  /// Whether this step has had regions.
  [[nodiscard]] bool is_cutting() const noexcept { return state_ == State::kCutting; }
  /// Of all steps.
  [[nodiscard]] const RegionTotals& totals() const noexcept { return totals_; }

  // Saves.
  /// Whether a buffer that would be offloaded stays until its region ends.
  [[nodiscard]] bool take(const std::shared_ptr<SavedBuffer>& buffer);
  /// A tensor of the buffer was saved.
  void saved(SavedBuffer& buffer, const at::Tensor& tensor);

  // Calls of forward passes.
  /// Whether end_region() is to be called before a call in `scope` begins.
  [[nodiscard]] bool is_over(const std::string& scope, c10::ArrayRef<const c10::IValue> inputs);
  /// Recomputes, compares, and discards or offloads. Takes both locks of the session. Waits for the
  /// device. What fails is kept or offloaded; throws nothing of the operators.
  void end_region();
  void call_begins(CallId id, const std::string& scope);
  void call_ended(const Call& call);

  // Backward.
  void begin_backward(const Pass& pass);
  /// Backward reads a buffer that is on the device.
  void read(SavedBuffer& buffer);
  /// What a verification step has beyond its plan.
  [[nodiscard]] std::size_t verification_bytes(std::size_t otherwise) const;
  /// The limit on values that replays keep, in a step without a plan.
  [[nodiscard]] Bytes cache_limit(Bytes otherwise) const;

  // What the session holds beside saved buffers.
  [[nodiscard]] std::int64_t bytes() const override;
  [[nodiscard]] std::size_t holds(const c10::StorageImpl* storage) const override;

 private:
  using BufferRef = std::shared_ptr<SavedBuffer>;

  enum class State {
    kOff,         // The step has a plan, and does not verify.
    kOffloading,  // All has room so far.
    kCutting,     // Passes are cut into regions from here on.
  };

  struct Region {
    std::shared_ptr<Pass> pass;
    CallId first_call = 0;
    std::string layer;  // Of its calls so far: of the last one.
    std::int64_t bytes = 0;
    // The least that a call has read.
    std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
    std::vector<std::weak_ptr<SavedBuffer>> buffers;
    // What its calls read that was made before, and what they made that no replay can make. Held.
    std::vector<ValueId> inputs;
    std::unordered_set<ValueId> is_input;
    std::vector<ValueId> saved_again;  // Of discarded buffers of earlier regions.
    bool verified = false;             // In a verification step.
    bool ending = false;
  };

  /// A buffer of a region that ends.
  struct Candidate {
    enum class Outcome { kUnknown, kFailed, kMatches };
    BufferRef buffer;
    Outcome outcome = Outcome::kUnknown;
    at::Tensor differs;  // One bool on the device.
  };

  using Candidates = std::vector<Candidate>;

  void begin_cutting();
  /// Whether host memory has room for all that a verification step offloads.
  [[nodiscard]] bool has_room_to_verify() const;
  [[nodiscard]] std::int64_t activations_in(c10::ArrayRef<const c10::IValue> inputs) const;
  void forget_roots() noexcept;
  void begin_region(CallId first_call, const std::string& scope);
  /// Keeps a value until the region ends.
  void hold(Region& region, ValueId id);
  static void release_inputs(SessionCore& core, Region& region);
  /// A call writes into it.
  void forget_original(ValueId id);

  // The end of a region.
  void end(std::unique_lock<SessionMutex>& lock, Region& region);
  [[nodiscard]] Candidates candidates_of(Region& region, std::vector<BufferRef>& others) const;
  [[nodiscard]] static bool is_changed(const Region& region, const SavedBuffer& buffer);
  [[nodiscard]] static bool may_recompute(const Region& region, const SavedBuffer& buffer);
  void find_recipes(const Region& region, Candidates& candidates);
  void forget_recipes(const Region& region, Candidates& candidates);
  void compare(std::unique_lock<SessionMutex>& lock, const Region& region, Candidates& candidates);
  void recompute(std::unique_lock<SessionMutex>& lock, const Region& region, Candidates& candidates,
                 std::vector<std::size_t> wanted);
  static void read_results(std::unique_lock<SessionMutex>& lock, Candidates& candidates);
  void discard(SavedBuffer& buffer);
  /// Offloads what replays start from.
  void store_root(const Region& region, ValueId id);
  void restore(SavedBuffer& buffer, Value& value);
  void make_anchor(const Region& region, ValueId id, c10::Storage storage, bool is_shared);

  // The same in a verification step.
  void end_verified(std::unique_lock<SessionMutex>& lock, Region& region);
  [[nodiscard]] bool reads_unregistered(const RecipeBook& book,
                                        const std::vector<CallId>& calls) const;

  SessionCore& core_;
  State state_ = State::kOff;
  std::shared_ptr<Region> region_;  // Null: the next call begins one.
  // Of regions of this step that have ended: what replays start from.
  std::vector<ValueId> roots_;
  std::unordered_set<ValueId> is_root_;
  std::int64_t most_ = 0;   // Bytes after which a region ends wherever it is.
  std::int64_t least_ = 0;  // With fewer it does not end with a layer.
  bool recorded_ = false;   // This step records.
  bool verifies_ = false;   // It executes a plan, and verifies.
  bool needed_ = false;     // The last recording step had regions.
  RegionTotals totals_;
};

}  // namespace spillway
