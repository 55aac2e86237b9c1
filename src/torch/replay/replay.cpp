#include "torch/replay/replay.hpp"

#include <span>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/graph/storage_copy.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/replay/collective_results.hpp"

namespace spillway {
/// One call of a replay.
class Repetition {
 public:
  Repetition(Replay& replay, Replay::Repeated& repeated)
      : replay_(replay), repeated_(repeated), call_(*repeated.call) {}

  /// An argument that is only read, where it is now.
  [[nodiscard]] at::Tensor argument(const TensorArgument& of) const {
    const bool as_it_is = of.weight != nullptr && !state(of.value).copied;
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
      if (random) random->restore();
    }
    for (const Made& made : repeated_.makes) keep(made, stack);
    finish_inputs();
  }

  /// Frees inputs of which this call is the last reader.
  void finish_inputs() {
    repeated_.done = true;
    for (const TensorArgument& argument : call_.tensors) {
      Replay::State& value = state(argument.value);
      if (repeated_.counted) value.read();
      --value.uses;
      if (!value.needed()) value.storage = c10::Storage();
    }
  }

 private:
  [[nodiscard]] Replay::State& state(ValueId id) const { return replay_.values_.at(id); }

  [[nodiscard]] c10::Storage readable(const TensorArgument& argument) const {
    const Replay::State& value = state(argument.value);
    if (value.may_change) argument.window.require_unmodified();
    TORCH_CHECK(value.storage, "[recompute] ", call_.traits->name,
                " cannot be repeated: one of its arguments is gone");
    return value.storage;
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
    Replay::State& value = state(argument.value);
    const int mine = repeated_.counted ? 1 : 0;
    const bool last_reader =
        value.taken && value.readers_left <= mine && value.uses <= 1 && !value.wanted;
    if (last_reader) {
      value.storage = c10::Storage();
    } else {
      storage = copy_of(storage);
    }
    owned_.emplace_back(argument.value, storage);
    return storage;
  }

  void keep(const Made& made, const torch::jit::Stack& stack) {
    Replay::State& value = state(made.value);
    // Results that nothing reads may differ: some operators compute more where gradients are
    // enabled.
    if (!value.needed()) return;
    c10::Storage storage = result(made, stack);
    TORCH_CHECK(storage.nbytes() == value.bytes, "[recompute] ", call_.traits->name, " returned ",
                storage.nbytes(), " bytes when it was repeated, ", value.bytes,
                " before; keep its outputs by a rule");
    value.set(std::move(storage));
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

  Replay& replay_;
  Replay::Repeated& repeated_;
  const Call& call_;
  int lists_done_ = 0;
  c10::SmallVector<std::pair<ValueId, c10::Storage>, 1> owned_;
};

/// Several calls of a replay, repeated by one kernel.
class ChainRepetition {
 public:
  ChainRepetition(Replay& replay, std::span<Replay::Repeated> calls)
      : replay_(replay), calls_(calls) {}

  /// Returns false if the chain cannot run as one kernel; nothing has been queued then.
  [[nodiscard]] bool run(ChainRunner& runner) {
    for (Replay::Repeated& each : calls_) {
      if (!add(each)) return false;
    }
    find_outputs();
    if (!runner.run(program_, elements_, inner_, inputs_, outputs_)) return false;
    std::size_t next = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (program_.nodes[i].stored) {
        replay_.values_.at(results_[i]).set(outputs_[next++].storage());
      }
    }
    for (Replay::Repeated& each : calls_) Repetition(replay_, each).finish_inputs();
    return true;
  }

 private:
  bool add(Replay::Repeated& repeated) {
    const std::optional<ElementwiseCall>& each = repeated.elementwise;
    if (!each) return false;
    elements_ = each->elements;
    inner_ = each->inner;
    ChainProgram::Node node{each->operation, {-1, -1}, each->dtype, false};
    for (std::size_t i = 0; i < each->operands.size(); ++i) {
      const ElementwiseCall::Operand& operand = each->operands[i];
      if (operand.argument == nullptr) continue;
      const std::optional<int> index = operand_index(operand, repeated);
      if (!index) return false;
      node.operands[i] = *index;
      Reads& reads = reads_[operand.argument->value];
      ++reads.all;
      if (repeated.counted) ++reads.first;
    }
    program_.nodes.push_back(node);
    results_.push_back(each->result);
    return true;
  }

  /// The index of an operand: of an input, or of a node as a number below -1, to be resolved when
  /// all inputs are known.
  std::optional<int> operand_index(const ElementwiseCall::Operand& operand,
                                   Replay::Repeated& repeated) {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (results_[i] == operand.argument->value) return kFirstNode - static_cast<int>(i);
    }
    at::Tensor tensor = Repetition(replay_, repeated).argument(*operand.argument);
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
      const Replay::State& value = replay_.values_.at(id);
      const Reads inside = reads_[id];
      node.stored = value.wanted || value.readers_left > inside.first || value.uses > inside.all;
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

  Replay& replay_;
  std::span<Replay::Repeated> calls_;
  ChainProgram program_;
  std::vector<ValueId> results_;  // By node.
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::unordered_map<ValueId, Reads> reads_;
  std::int64_t elements_ = 0;
  std::int64_t inner_ = 0;
};

void Replay::expect(RecipeBook& book, const std::vector<CallId>& calls) {
  for (const CallId id : calls) {
    Call& call = book.call(id);
    if (std::exchange(call.counted, true)) continue;
    for (const TensorArgument& argument : call.tensors) ++book.value(argument.value).readers_left;
  }
}

Replay::Replay(RecipeBook& book, const Job& job, bool chains) {
  if (chains) {
    for (const std::vector<CallId>& group : chains_of(book, job.calls)) {
      for (const CallId id : group) add(book, id);
      groups_.push_back(group.size());
      if (group.size() == 1) continue;
      for (std::size_t i = calls_.size() - group.size(); i < calls_.size(); ++i) {
        calls_[i].elementwise = elementwise(book, *calls_[i].call);
      }
    }
  } else {
    for (const CallId id : job.calls) add(book, id);
    groups_.assign(calls_.size(), 1);
  }
  for (auto& [id, state] : values_) take(book, job, id, state);
}

void Replay::add(RecipeBook& book, CallId id) {
  const Call& call = book.call(id);
  calls_.push_back({id, &call, call.makes, call.counted && !call.repeated, false, std::nullopt});
  for (const TensorArgument& argument : call.tensors) ++values_[argument.value].uses;
  for (const Made& made : call.makes) (void)values_[made.value];
}

void Replay::take(RecipeBook& book, const Job& job, ValueId id, State& state) {
  Value& value = book.value(id);
  state.bytes = value.bytes;
  state.copied = value.copied;
  state.readers_left = value.readers_left;
  state.wanted = job.wanted.contains(id);
  const bool elsewhere = value.fixed || value.maker < 0 || value.root_storage;
  state.may_change = elsewhere && !value.copied && !value.recomputed;
  if (const auto input = job.inputs.find(id); input != job.inputs.end()) {
    state.storage = input->second;
    return;
  }
  state.taken = true;
  value.in_replay = true;
  state.storage = std::exchange(value.recomputed, c10::Storage());
}

int Replay::run(ChainRunner* chains) {
  const at::NoGradGuard no_gradients;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const RecordingPause pause;
  int kernels = 0;
  std::span<Repeated> calls(calls_);
  for (const std::size_t size : groups_) {
    const std::span<Repeated> group = calls.first(size);
    calls = calls.subspan(size);
    if (size > 1 && ChainRepetition(*this, group).run(*chains)) {
      ++kernels;
      continue;
    }
    for (Repeated& each : group) Repetition(*this, each).run();
  }
  return kernels;
}

std::vector<c10::Storage> Replay::finish(RecipeBook& book) {
  std::vector<c10::Storage> garbage;
  for (const Repeated& each : calls_) {
    // One that is expected only later is repeated again then.
    Call& call = book.call(each.id);
    if (each.done && call.counted) call.repeated = true;
  }
  for (auto& [id, state] : values_) {
    Value& value = book.value(id);
    value.readers_left -= state.reads;
    if (state.taken) value.in_replay = false;
    const bool needed = state.wanted || value.readers_left > 0;
    if (state.taken && needed && !value.recomputed) std::swap(value.recomputed, state.storage);
    if (!needed && value.recomputed) garbage.push_back(std::exchange(value.recomputed, {}));
    if (state.storage) garbage.push_back(std::move(state.storage));
  }
  values_.clear();
  return garbage;
}

std::vector<c10::Storage> Replay::trim(RecipeBook& book, const Job& job, std::size_t bound) {
  std::deque<ValueId>& cached = book.cached();
  // Some were cached once, are gone since, and are somebody else's result now.
  std::erase_if(cached,
                [&](ValueId id) { return !book.value(id).recomputed || job.wanted.contains(id); });
  for (const CallId id : job.calls) {
    for (const Made& made : book.call(id).makes) {
      const bool stays = book.value(made.value).recomputed && !job.wanted.contains(made.value);
      if (stays) cached.push_back(made.value);
    }
  }
  std::vector<c10::Storage> garbage;
  std::size_t bytes = 0;
  for (const ValueId id : cached) bytes += book.value(id).bytes;
  while (bytes > bound && !cached.empty()) {
    Value& oldest = book.value(cached.front());
    cached.pop_front();
    bytes -= oldest.bytes;
    garbage.push_back(std::exchange(oldest.recomputed, c10::Storage()));
  }
  return garbage;
}

}  // namespace spillway
