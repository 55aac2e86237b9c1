/// How everything in a step was computed: the calls of the forward passes, and the values they read
/// and produced; internal.
///
/// A value is what one storage holds from one write to the next. Version counters reveal writes
/// that were not recorded; they do not identify values, because tensors with counters of their own
/// may share a storage (`x.data`). The book keeps no tensor alive: it knows storages by pins, and
/// holds a value's memory only while a replay may start from it.
/// Calls are in the order in which they ran, so any set of them, in that order, can be repeated.
///
/// Threads: under the session's lock. A call that has ended may be read without it, except `makes`,
/// `counted` and `repeated`; calls and values do not move.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "torch/graph/compute_flags.hpp"
#include "torch/graph/generator_state.hpp"
#include "torch/graph/signature.hpp"
#include "torch/graph/storage_pin.hpp"
#include "torch/graph/tensor_window.hpp"
#include "torch/graph/weights.hpp"
#include "torch/hooks/operator_traits.hpp"

namespace spillway {

struct SavedBuffer;

using ValueId = int;
using CallId = int;

struct Value {
  StoragePin pin;
  std::uint32_t version = 0;
  c10::VariableVersion counter;
  bool overwritten = false;  // The storage holds another value now.
  std::size_t bytes = 0;
  CallId maker = -1;        // -1: it came from outside, or its writer is unknown.
  bool unclaimed = false;   // Seen at a save; no call is known to have made it yet.
  CallId filled_by = -1;    // A call that wrote it without bumping the version.
  bool fixed = false;       // A weight or a registered buffer.
  bool of_weights = false;  // Seen only as the memory of weights, which their owners may replace.
  const void* data = nullptr;    // Its memory when it was seen first.
  bool kept = false;             // Saved by autograd and never moved.
  bool owned_elsewhere = false;  // Its owner frees or replaces its memory: no replay reads it.
  // Its storage was given to a collective or came from one, so threads of a backend may hold it,
  // for any time: who holds it says nothing about the program.
  bool communicated = false;
  std::weak_ptr<SavedBuffer> buffer;
  Origin origin = Origin::kData;
  Signature signature = 0;  // 0: no call is known to have made it.
  int verified_as = -1;     // The id of a buffer that is saved and recomputed to be compared.

  // While replays may start from it.
  int root_count = 0;
  bool copied = false;  // `root_storage` is a copy: the original was changed since.
  c10::Storage root_storage;
  std::shared_ptr<SavedBuffer> root_buffer;

  // For replays.
  c10::Storage held;  // The original, while its region is verified.
  c10::Storage recomputed;
  bool in_replay = false;  // The replay that runs has taken `recomputed`, or computes it.
  int readers_left = 0;    // Calls that replays still have to repeat and that read it.

  /// Whether the storage, if it is still alive, holds this value.
  [[nodiscard]] bool unchanged() const {
    return !overwritten && counter.current_version() == version;
  }
};

/// A tensor among a call's arguments.
struct TensorArgument {
  int position = 0;
  int element = -1;  // In a list of tensors; -1: the argument itself.
  ValueId value = -1;
  bool written = false;
  TensorWindow window;
  std::shared_ptr<const WeightView> weight;  // Null: not a weight.
};

/// Where a value comes out of a call.
struct Made {
  ValueId value = -1;
  int argument = -1;  // If changed in place: its index in `tensors`. Else -1.
  int output = -1;    // Else its index among the outputs.
  int element = -1;   // Its index in an output that is a list; else -1.
};

struct Call {
  const OperatorTraits* traits = nullptr;
  int pass = 0;    // Number of the pass in its step.
  int number = 0;  // Number of the call in its pass.
  int saves = 0;   // As in OperatorProfile.
  int ordinal = 0;
  Origin origin = Origin::kConstant;  // Of what it makes.
  Signature signature = 0;
  int saved_results = 0;  // Tensors saved while it ran whose maker is not known yet.
  bool ended = false;
  // It wrote into something whose producer is unknown, or continued from such a write.
  bool wrote_foreign = false;
  std::vector<c10::IValue> arguments;  // Without tensors.
  c10::SmallVector<TensorArgument, 3> tensors;
  std::vector<TensorArgument> shapes;  // Tensors of which only the shape is read.
  c10::SmallVector<Made, 2> makes;
  std::optional<GeneratorState> random;
  const ComputeFlags* flags = nullptr;
  bool gradients = true;  // Some operators return fewer results without gradients.
  std::string no_replay;  // Why it cannot be repeated; empty if it can.
  bool counted = false;   // It was added to its inputs' readers_left.
  bool repeated = false;  // It was subtracted again.
};

class RecipeBook {
 public:
  /// The storage if it was registered as a parameter or a buffer: never recomputed, never written
  /// by a replay, and so is what weight_of() finds.
  using FindFixed = std::function<std::optional<FixedStorage>(const c10::StorageImpl*)>;

  /// The number of a weight that was not registered: the same in every step.
  using NumberWeight = std::function<std::uint64_t(const at::Tensor&)>;

  RecipeBook(FindFixed find_fixed, NumberWeight number_weight, bool collectives_may_be_repeated)
      : find_fixed_(std::move(find_fixed)),
        number_weight_(std::move(number_weight)),
        collectives_(collectives_may_be_repeated) {}
  RecipeBook(const RecipeBook&) = delete;
  RecipeBook& operator=(const RecipeBook&) = delete;

  /// Records a call that begins. `inputs` are read during this call only.
  CallId begin(const OperatorTraits& traits, c10::ArrayRef<const c10::IValue> inputs, int pass,
               int number);
  /// Records what the call produced.
  void end(CallId call, const std::vector<c10::IValue>& outputs);

  /// The value of an ordinary tensor that autograd saves. New if it was not seen before: then the
  /// running call may turn out to have produced it.
  ValueId saved(const at::Tensor& tensor);

  /// The signature of what is saved now: of its value, or, if no call is known to have made that,
  /// of its place among what `running`, the innermost call (-1: none), has saved. `value`: as
  /// saved() gave it; -1 for a tensor that is not ordinary.
  [[nodiscard]] Signature sign_save(ValueId value, CallId running, const at::Tensor& tensor);

  [[nodiscard]] Value& value(ValueId id) { return values_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Value& value(ValueId id) const {
    return values_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] Call& call(CallId id) { return calls_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Call& call(CallId id) const { return calls_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] CallId calls() const noexcept { return static_cast<CallId>(calls_.size()); }
  [[nodiscard]] ValueId values() const noexcept { return static_cast<ValueId>(values_.size()); }

  /// The calls that read a weight, in order.
  [[nodiscard]] const std::vector<CallId>& weight_readers() const noexcept {
    return weight_readers_;
  }

  /// An operator ran that could not be recorded, for this reason: nothing may be repeated any more.
  void mark_incomplete(const std::string& reason) {
    incomplete_ = reason.empty() ? "an operator was not recorded" : reason;
  }
  /// Why nothing may be repeated; empty if calls may.
  [[nodiscard]] const std::string& incomplete() const noexcept { return incomplete_; }
  /// Whether other ranks must repeat the same collectives as this one, in the same order.
  [[nodiscard]] bool repeats_collectives() const noexcept { return collectives_; }

  /// Values that were recomputed and wait for their last reader, oldest first; used by Replay.
  [[nodiscard]] std::deque<ValueId>& cached() noexcept { return cached_; }

 private:
  ValueId find_or_add(const StoragePin& pin, const c10::VariableVersion& counter,
                      std::size_t bytes);
  /// Ends the storage's value and adds a new one, whose maker is unknown yet.
  ValueId overwrite(const StoragePin& pin, const c10::VariableVersion& counter, std::size_t bytes);
  void note_write(CallId id, int position);
  void add_argument(Call& call, int position, int element, const at::Tensor& tensor, bool written);
  void add_input(Call& call, int position, const c10::IValue& input, bool written);
  void made(CallId id, const Made& made, ValueId result_id);
  void made_output(CallId id, int output, int element, const at::Tensor& tensor);
  void sign(Call& call) const;
  const ComputeFlags* flags_now();

  std::deque<Value> values_;
  std::deque<Call> calls_;
  std::unordered_map<const c10::StorageImpl*, ValueId> current_;  // What each storage holds.
  std::deque<ComputeFlags> flags_;
  std::deque<ValueId> cached_;
  std::vector<CallId> weight_readers_;
  FindFixed find_fixed_;
  NumberWeight number_weight_;
  bool collectives_;
  std::string incomplete_;
};

}  // namespace spillway
