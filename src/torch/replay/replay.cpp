#include "torch/replay/replay.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/graph/storage_copy.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/replay/chain.hpp"
#include "torch/replay/collective_results.hpp"

namespace spillway {
namespace {

/// How often the calls of a job still read each value.
using Uses = std::unordered_map<ValueId, int>;

/// One call of a job.
class Repetition {
 public:
  Repetition(RecipeBook& book, const Replay::Job& job, Uses& uses, Call& call)
      : book_(book), job_(job), uses_(uses), call_(call) {}

  /// An argument that is only read, where it is now.
  [[nodiscard]] at::Tensor argument(const TensorArgument& of) const {
    const bool as_it_is = of.weight != nullptr && !book_.value(of.value).copied;
    return as_it_is ? weight(of) : of.window.on(readable(of));
  }

  void run() {
    torch::jit::Stack stack = call_.arguments;
    for (const TensorArgument& argument : call_.tensors) put(stack, argument);
    for (const TensorArgument& argument : call_.shapes) {
      stack[static_cast<std::size_t>(argument.position)] = argument.window.without_memory();
    }
    {
      const AppliedFlags flags(*call_.flags);
      const at::AutoGradMode gradients(call_.gradients);  // Nothing here requires any.
      std::optional<GeneratorState::Applied> random;
      if (call_.random) random.emplace(*call_.random);
      call_.traits->handle.callBoxed(&stack);
      if (call_.traits->collective) wait_for_results(*call_.traits, stack);
    }
    for (const Made& made : call_.makes) keep(made, stack);
    finish_inputs();
  }

  /// Frees inputs of which this call is the last reader.
  void finish_inputs() {
    const bool first = !std::exchange(call_.repeated, true) && call_.counted;
    for (const TensorArgument& argument : call_.tensors) {
      Value& value = book_.value(argument.value);
      if (first) --value.readers_left;
      const int uses = --uses_[argument.value];
      if (value.readers_left == 0 && uses == 0 && !job_.wanted.contains(argument.value)) {
        value.recomputed = c10::Storage();
      }
    }
  }

 private:
  [[nodiscard]] c10::Storage storage_of(ValueId id) const {
    const auto input = job_.inputs.find(id);
    return input != job_.inputs.end() ? input->second : book_.value(id).recomputed;
  }

  [[nodiscard]] c10::Storage readable(const TensorArgument& argument) const {
    const Value& value = book_.value(argument.value);
    // Values from outside and roots share memory with their owners, who may have changed it since.
    const bool elsewhere = value.fixed || value.maker < 0 || value.root_storage;
    if (elsewhere && !value.copied && !value.recomputed) argument.window.require_unmodified();
    c10::Storage storage = storage_of(argument.value);
    TORCH_CHECK(storage, "[recompute] ", call_.traits->name,
                " cannot be repeated: one of its arguments is gone");
    return storage;
  }

  [[nodiscard]] at::Tensor weight(const TensorArgument& of) const {
    of.window.require_unmodified();
    at::Tensor now = of.weight->now(of.window);
    TORCH_CHECK(now.defined(), "[recompute] ", call_.traits->name,
                " cannot be repeated: a weight that it reads has no memory now, or other sizes; "
                "keep or offload its outputs by a rule");
    return now;
  }

  void put(torch::jit::Stack& stack, const TensorArgument& argument) {
    at::Tensor tensor = argument.written ? argument.window.on(own(argument, readable(argument)))
                                         : this->argument(argument);
    c10::IValue& slot = stack[static_cast<std::size_t>(argument.position)];
    if (argument.element < 0) {
      slot = std::move(tensor);
      return;
    }
    if (lists_done_ <= argument.position) {
      slot = slot.toList().copy();
      lists_done_ = argument.position + 1;
    }
    slot.toList().set(static_cast<std::size_t>(argument.element), std::move(tensor));
  }

  /// Memory that the call may change in place: the last reader's own, else a copy.
  c10::Storage own(const TensorArgument& argument, c10::Storage storage) {
    for (const auto& [value, mine] : owned_) {
      if (value == argument.value) return mine;
    }
    Value& value = book_.value(argument.value);
    const int mine = call_.counted && !call_.repeated ? 1 : 0;
    const bool last_reader = !job_.inputs.contains(argument.value) && value.readers_left <= mine &&
                             uses_[argument.value] <= 1 && !job_.wanted.contains(argument.value);
    if (last_reader) {
      value.recomputed = c10::Storage();
    } else {
      storage = copy_of(storage);
    }
    owned_.emplace_back(argument.value, storage);
    return storage;
  }

  void keep(const Made& made, const torch::jit::Stack& stack) {
    Value& value = book_.value(made.value);
    // Results that nothing reads may differ: some operators compute more where gradients are
    // enabled.
    if (!job_.wanted.contains(made.value) && value.readers_left == 0 && uses_[made.value] == 0) {
      return;
    }
    c10::Storage storage = result(made, stack);
    TORCH_CHECK(storage.nbytes() == value.bytes, "[recompute] ", call_.traits->name, " returned ",
                storage.nbytes(), " bytes when it was repeated, ", value.bytes,
                " before; keep its outputs by a rule");
    value.recomputed = std::move(storage);
  }

  [[nodiscard]] c10::Storage result(const Made& made, const torch::jit::Stack& stack) const {
    if (made.argument >= 0) {
      const ValueId before = call_.tensors[static_cast<std::size_t>(made.argument)].value;
      for (const auto& [owner, mine] : owned_) {
        if (owner == before) return mine;
      }
    }
    const c10::IValue& output = stack[static_cast<std::size_t>(made.output)];
    const at::Tensor tensor = made.element < 0
                                  ? output.toTensor()
                                  : output.toTensorVector()[static_cast<std::size_t>(made.element)];
    TORCH_CHECK(tensor.defined(), "[recompute] ", call_.traits->name,
                " returned nothing when it was repeated without gradients; keep its outputs by a "
                "rule");
    return tensor.storage();
  }

  RecipeBook& book_;
  const Replay::Job& job_;
  Uses& uses_;
  Call& call_;
  int lists_done_ = 0;
  c10::SmallVector<std::pair<ValueId, c10::Storage>, 1> owned_;
};

/// Several calls of a job, repeated by one kernel.
class ChainRepetition {
 public:
  ChainRepetition(RecipeBook& book, const Replay::Job& job, Uses& uses,
                  const std::vector<CallId>& calls)
      : book_(book), job_(job), uses_(uses), calls_(calls) {}

  /// Returns false if the chain cannot run as one kernel; nothing has been queued then.
  [[nodiscard]] bool run(ChainRunner& runner) {
    for (const CallId id : calls_) {
      if (!add(book_.call(id))) return false;
    }
    find_outputs();
    if (!runner.run(program_, elements_, inner_, inputs_, outputs_)) return false;
    std::size_t next = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      Value& value = book_.value(results_[i]);
      if (program_.nodes[i].stored) value.recomputed = outputs_[next++].storage();
    }
    for (const CallId id : calls_) Repetition(book_, job_, uses_, book_.call(id)).finish_inputs();
    return true;
  }

 private:
  bool add(Call& call) {
    const std::optional<ElementwiseCall> each = elementwise(book_, call);
    if (!each) return false;
    elements_ = each->elements;
    inner_ = each->inner;
    ChainProgram::Node node{each->operation, {-1, -1}, each->dtype, false};
    for (std::size_t i = 0; i < each->operands.size(); ++i) {
      const ElementwiseCall::Operand& operand = each->operands[i];
      if (operand.argument == nullptr) continue;
      const std::optional<int> index = operand_index(operand, call);
      if (!index) return false;
      node.operands[i] = *index;
      Reads& reads = reads_[operand.argument->value];
      ++reads.all;
      if (call.counted && !call.repeated) ++reads.first;
    }
    program_.nodes.push_back(node);
    results_.push_back(each->result);
    return true;
  }

  /// The index of an operand: of an input, or of a node as a number below -1, to be resolved when
  /// all inputs are known.
  std::optional<int> operand_index(const ElementwiseCall::Operand& operand, Call& call) {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (results_[i] == operand.argument->value) return kFirstNode - static_cast<int>(i);
    }
    at::Tensor tensor = Repetition(book_, job_, uses_, call).argument(*operand.argument);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const bool same = inputs_[i].data_ptr() == tensor.data_ptr() &&
                        inputs_[i].scalar_type() == tensor.scalar_type() &&
                        program_.inputs[i].access == operand.access;
      if (same) return static_cast<int>(i);
    }
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());  // NOLINT
    if (address % ChainProgram::kAlignment != 0) return std::nullopt;
    program_.inputs.push_back({tensor.scalar_type(), operand.access});
    inputs_.push_back(std::move(tensor));
    return static_cast<int>(inputs_.size()) - 1;
  }

  void find_outputs() {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      ChainProgram::Node& node = program_.nodes[i];
      for (int& operand : node.operands) {
        if (operand <= kFirstNode) {
          operand = static_cast<int>(inputs_.size()) + (kFirstNode - operand);
        }
      }
      const ValueId id = results_[i];
      const Value& value = book_.value(id);
      const Reads inside = reads_[id];
      node.stored =
          job_.wanted.contains(id) || value.readers_left > inside.first || uses_[id] > inside.all;
      if (!node.stored) continue;
      outputs_.push_back(at::empty({elements_}, inputs_[0].options().dtype(node.dtype)));
    }
  }

  /// How often the chain reads a value, and how often for the first time.
  struct Reads {
    int all = 0;
    int first = 0;
  };
  static constexpr int kFirstNode = -2;

  RecipeBook& book_;
  const Replay::Job& job_;
  Uses& uses_;
  const std::vector<CallId>& calls_;
  ChainProgram program_;
  std::vector<ValueId> results_;  // By node.
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::unordered_map<ValueId, Reads> reads_;
  std::int64_t elements_ = 0;
  std::int64_t inner_ = 0;
};

}  // namespace

void Replay::expect(RecipeBook& book, const std::vector<CallId>& calls) {
  for (const CallId id : calls) {
    Call& call = book.call(id);
    if (std::exchange(call.counted, true)) continue;
    for (const TensorArgument& argument : call.tensors) ++book.value(argument.value).readers_left;
  }
}

int Replay::run(RecipeBook& book, const Job& job, ChainRunner* chains) {
  const at::NoGradGuard no_gradients;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const RecordingPause pause;
  Uses uses;
  for (const CallId id : job.calls) {
    for (const TensorArgument& argument : book.call(id).tensors) ++uses[argument.value];
  }
  if (chains == nullptr) {
    for (const CallId id : job.calls) Repetition(book, job, uses, book.call(id)).run();
    return 0;
  }
  int kernels = 0;
  for (const std::vector<CallId>& calls : chains_of(book, job.calls)) {
    if (calls.size() > 1 && ChainRepetition(book, job, uses, calls).run(*chains)) {
      ++kernels;
      continue;
    }
    for (const CallId id : calls) Repetition(book, job, uses, book.call(id)).run();
  }
  return kernels;
}

void Replay::trim(RecipeBook& book, const Job& job, std::size_t bound) {
  std::deque<ValueId>& cached = book.cached();
  for (const CallId id : job.calls) {
    for (const Made& made : book.call(id).makes) {
      const bool stays = book.value(made.value).recomputed && !job.wanted.contains(made.value);
      if (stays) cached.push_back(made.value);
    }
  }
  std::size_t bytes = 0;
  for (const ValueId id : cached) bytes += book.value(id).recomputed ? book.value(id).bytes : 0;
  while (bytes > bound && !cached.empty()) {
    Value& oldest = book.value(cached.front());
    cached.pop_front();
    if (!oldest.recomputed) continue;
    bytes -= oldest.bytes;
    oldest.recomputed = c10::Storage();
  }
}

}  // namespace spillway
