#include "torch/graph/recipe_book.hpp"

#include <algorithm>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include "spillway/plan/profile.hpp"

namespace spillway {
namespace {

/// The generator that a random operator draws from: the one it is given, or its device's.
at::Generator generator_of(c10::ArrayRef<const c10::IValue> inputs) {
  at::Device device = at::kCPU;
  bool found = false;
  for (const c10::IValue& input : inputs) {
    if (input.isGenerator() && input.toGenerator().defined()) return input.toGenerator();
    if (found) continue;
    if (input.isTensor() && input.toTensor().defined()) {
      device = input.toTensor().device();
      found = true;
    } else if (input.isDevice()) {
      device = input.toDevice();
      found = true;
    }
  }
  return at::globalContext().defaultGenerator(device);
}

// What signatures begin with.
constexpr Signature kCall = 1;
constexpr Signature kFixed = 2;
constexpr Signature kSaved = 3;

/// Of what a call knows about a tensor argument whatever its value is.
std::uint64_t shape_word(const TensorArgument& argument) {
  const auto part = [](auto number) { return static_cast<std::uint64_t>(number) & 0xffffU; };
  return part(argument.position) | part(argument.element) << 16U |
         part(argument.window.dtype()) << 32U | part(argument.window.sizes().size()) << 48U;
}

/// Of an argument that is no tensor. Numbers may change from step to step.
std::uint64_t kind_word(const c10::IValue& argument) {
  if (argument.isNone()) return 1;
  if (argument.isBool()) return argument.toBool() ? 2 : 3;
  return 0;
}

/// A number that was wrapped into a tensor for the call; nothing else refers to it.
bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() && !tensor.requires_grad();
}

}  // namespace

CallId RecipeBook::begin(const OperatorTraits& traits, c10::ArrayRef<const c10::IValue> inputs,
                         int pass, int number) {
  const auto id = static_cast<CallId>(calls_.size());
  Call& call = calls_.emplace_back();
  call.traits = &traits;
  call.pass = pass;
  call.number = number;
  call.flags = flags_now();
  call.gradients = at::GradMode::is_enabled();
  call.no_replay =
      collectives_ && traits.no_replay == kCollective ? std::string() : traits.no_replay;
  call.arguments.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    add_input(call, static_cast<int>(i), inputs[i], i < traits.writes.size() && traits.writes[i]);
  }
  if (traits.random) call.random.emplace(generator_of(inputs));
  const auto is_weight = [](const TensorArgument& each) { return each.weight != nullptr; };
  if (std::ranges::any_of(call.tensors, is_weight)) weight_readers_.push_back(id);
  sign(call);
  return id;
}

void RecipeBook::sign(Call& call) const {
  Signature signature = combined(kCall, call.traits->signature);
  for (const c10::IValue& argument : call.arguments) {
    signature = combined(signature, kind_word(argument));
  }
  const Value* last = nullptr;  // Of the activations, the one made last.
  bool data = call.traits->random;
  bool parameters = false;
  for (const TensorArgument& argument : call.tensors) {
    const Value& value = this->value(argument.value);
    signature = combined(signature, shape_word(argument));
    switch (value.origin) {
      case Origin::kConstant:
        break;
      case Origin::kData:
        data = true;
        break;
      case Origin::kParameter:
        parameters = true;
        signature = combined(signature, value.signature);
        break;
      case Origin::kActivation:
        data = true;
        // What another pass made came from outside of this one.
        if (this->call(value.maker).pass != call.pass) break;
        if (last == nullptr || value.maker > last->maker) last = &value;
        break;
    }
  }
  if (last != nullptr && !parameters) signature = combined(signature, last->signature);
  call.signature = signature;
  if (parameters || last != nullptr) {
    call.origin = data ? Origin::kActivation : Origin::kParameter;
  } else {
    call.origin = data ? Origin::kData : Origin::kConstant;
  }
}

Signature RecipeBook::sign_save(ValueId id, CallId running, const at::Tensor& tensor) {
  // What depends on no parameter may come from outside in later steps, as tables that a program
  // makes once: its saver identifies it.
  const bool known = id >= 0 && (value(id).origin == Origin::kActivation ||
                                 value(id).origin == Origin::kParameter);
  if (known) return combined(kSaved, value(id).signature);
  Signature signature = combined(kSaved, static_cast<std::uint64_t>(tensor.scalar_type()));
  if (running < 0) return combined(signature, static_cast<std::uint64_t>(tensor.dim()));
  Call& saver = call(running);
  signature = combined(signature, saver.signature);
  return combined(signature, static_cast<std::uint64_t>(saver.saved_results++));
}

const ComputeFlags* RecipeBook::flags_now() {
  const ComputeFlags now = ComputeFlags::now();
  if (flags_.empty() || flags_.back() != now) flags_.push_back(now);
  return &flags_.back();
}

void RecipeBook::add_input(Call& call, int position, const c10::IValue& input, bool written) {
  if (input.isTensor()) {
    const at::Tensor& tensor = input.toTensor();
    if (!tensor.defined() || is_number(tensor)) {
      call.arguments.push_back(input);
      return;
    }
    call.arguments.emplace_back();
    add_argument(call, position, -1, tensor, written);
    return;
  }
  if (!input.isList()) {
    call.arguments.push_back(input);
    return;
  }
  // Lists of tensors come as lists of tensors, of optional tensors, or of anything.
  const c10::ArrayRef<c10::IValue> elements = input.toListRef();
  bool any = false;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (!elements[i].isTensor() || !elements[i].toTensor().defined()) continue;
    add_argument(call, position, static_cast<int>(i), elements[i].toTensor(), written);
    any = true;
  }
  if (!any) {
    call.arguments.push_back(input);
    return;
  }
  c10::impl::GenericList empty_slots = input.toList().copy();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].isTensor()) empty_slots.set(i, at::Tensor());
  }
  call.arguments.emplace_back(std::move(empty_slots));
}

void RecipeBook::add_argument(Call& call, int position, int element, const at::Tensor& tensor,
                              bool written) {
  if (!is_ordinary(tensor)) {
    call.no_replay = "an argument that is not an ordinary dense tensor";
    return;
  }
  TensorArgument argument;
  argument.position = position;
  argument.element = element;
  if (call.traits->uninitialised) {
    argument.window = TensorWindow(tensor);
    call.shapes.push_back(std::move(argument));
    return;
  }
  argument.value = saved(tensor);
  if (const at::Tensor weight = weight_of(tensor); weight.defined()) {
    argument.weight = std::make_shared<const WeightView>(weight);
  }
  value(argument.value).unclaimed = false;
  if (call.traits->collective) value(argument.value).communicated = true;
  argument.written = written;
  argument.window = TensorWindow(tensor);
  if (written && (value(argument.value).maker < 0 || value(argument.value).fixed)) {
    // Its old content is gone, and a replay must not write into memory of others.
    call.no_replay = "an in-place change of something that came from outside";
    call.wrote_foreign = true;
  }
  // Nor can a replay repeat a call that continues from such a write.
  const CallId maker = value(argument.value).maker;
  if (written && maker >= 0 && this->call(maker).wrote_foreign) call.wrote_foreign = true;
  call.tensors.push_back(std::move(argument));
}

ValueId RecipeBook::find_or_add(const StoragePin& pin, const c10::VariableVersion& counter,
                                std::size_t bytes) {
  // A tensor with another counter has the same memory. But if the known counter has advanced, there
  // was a write that was not recorded.
  const auto found = current_.find(pin.address());
  if (found != current_.end() && value(found->second).unchanged()) return found->second;
  return overwrite(pin, counter, bytes);
}

ValueId RecipeBook::overwrite(const StoragePin& pin, const c10::VariableVersion& counter,
                              std::size_t bytes) {
  const auto id = static_cast<ValueId>(values_.size());
  const auto [entry, added] = current_.try_emplace(pin.address(), id);
  const ValueId before = added ? -1 : std::exchange(entry->second, id);
  if (!added) value(before).overwritten = true;
  Value& value = values_.emplace_back();
  value.communicated = !added && this->value(before).communicated;
  value.pin = pin;
  value.version = counter.current_version();
  value.counter = counter;
  value.bytes = bytes;
  value.data = pin.address()->data();
  value.unclaimed = true;
  if (const std::optional<FixedStorage> fixed = find_fixed_(pin.address())) {
    value.fixed = true;
    value.origin = fixed->parameter ? Origin::kParameter : Origin::kConstant;
    value.signature = combined(kFixed, fixed->number);
  }
  return id;
}

ValueId RecipeBook::saved(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const ValueId before = values();
  const ValueId id = find_or_add(StoragePin(storage.unsafeGetStorageImpl()),
                                 tensor.unsafeGetTensorImpl()->version_counter(), storage.nbytes());
  Value& found = value(id);
  if (found.maker >= 0) return id;
  const at::Tensor weight = weight_of(tensor);
  found.of_weights = weight.defined() && (id >= before || found.of_weights);
  if (!weight.defined() || found.fixed) return id;
  found.fixed = true;
  if (is_python_parameter(weight)) {
    found.origin = Origin::kParameter;
    found.signature = combined(combined(kFixed, number_weight_(weight)),
                               static_cast<std::uint64_t>(weight.dim()));
  }
  return id;
}

void RecipeBook::end(CallId id, const std::vector<c10::IValue>& outputs) {
  call(id).ended = true;
  const auto arguments = static_cast<int>(call(id).tensors.size());
  for (int position = 0; position < arguments; ++position) {
    if (call(id).tensors[static_cast<std::size_t>(position)].written) note_write(id, position);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const int position = static_cast<int>(i);
    if (outputs[i].isTensor()) {
      made_output(id, position, -1, outputs[i].toTensor());
    } else if (outputs[i].isTensorList()) {
      int element = 0;
      for (const at::Tensor& tensor : outputs[i].toTensorVector()) {
        made_output(id, position, element++, tensor);
      }
    }
  }
}

void RecipeBook::note_write(CallId id, int position) {
  const TensorArgument& argument = call(id).tensors[static_cast<std::size_t>(position)];
  const StoragePin pin = value(argument.value).pin;
  // An operator that writes into an argument may resize it first.
  const auto alive = pin.lock();
  const std::size_t bytes = alive ? alive->nbytes() : value(argument.value).bytes;
  const c10::VariableVersion& counter = argument.window.counter();
  // A call inside of this one, or another argument on the same storage, may have noted it already.
  const bool noted = current_.at(pin.address()) != argument.value;
  const ValueId after = noted ? find_or_add(pin, counter, bytes) : overwrite(pin, counter, bytes);
  if (counter.current_version() != argument.window.version()) {
    made(id, {-1, position, -1, -1}, after);
  } else if (!noted) {
    // Written without a version bump: its content is unknown, except to an enclosing collective
    // that returns it as a new tensor.
    value(after).unclaimed = false;
    value(after).filled_by = id;
  }
}

void RecipeBook::made_output(CallId id, int output, int element, const at::Tensor& tensor) {
  if (!tensor.defined() || !is_ordinary(tensor)) return;
  const c10::Storage& storage = tensor.storage();
  const ValueId result =
      find_or_add(StoragePin(storage.unsafeGetStorageImpl()),
                  tensor.unsafeGetTensorImpl()->version_counter(), storage.nbytes());
  if (call(id).traits->collective) value(result).communicated = true;
  made(id, {-1, -1, output, element}, result);
}

void RecipeBook::made(CallId id, const Made& made, ValueId result_id) {
  // Calls inside of this one ended first: the deepest one that autograd sees owns its results.
  // Views of inputs have a maker already, too.
  Value& result = value(result_id);
  Call& maker = call(id);
  // Unless that one filled memory which only the enclosing call knows.
  const bool inner_cannot = result.maker > id && call(result.maker).wrote_foreign;
  const bool filled_inside = result.maker < 0 && result.filled_by > id && made.output >= 0 &&
                             maker.traits->collective && !maker.traits->writes_any;
  if (!result.unclaimed && !filled_inside && !(inner_cannot && maker.no_replay.empty())) return;
  if (inner_cannot) {
    auto& makes = call(result.maker).makes;
    makes.erase(std::remove_if(makes.begin(), makes.end(),
                               [&](const Made& each) { return each.value == result_id; }),
                makes.end());
  }
  result.unclaimed = false;
  result.maker = id;
  if (!result.fixed) {
    result.origin = maker.origin;
    // Of an argument changed in place, an output, an element of an output that is a list.
    result.signature = combined(combined(maker.signature, static_cast<std::uint64_t>(made.output)),
                                static_cast<std::uint64_t>(made.argument + made.element));
  }
  maker.makes.push_back(made);
  maker.makes.back().value = result_id;
}

}  // namespace spillway
