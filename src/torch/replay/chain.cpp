#include "torch/replay/chain.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace spillway {
namespace {

using Access = ChainProgram::Access;
using Operation = ChainProgram::Operation;

/// Below that a kernel's launch costs more than its work.
constexpr std::int64_t kFewest = 1 << 16;

/// The operation of the call, if its non-tensor arguments are supported.
std::optional<Operation> operation_of(const Call& call) {
  const c10::OperatorName& name = call.traits->handle.operator_name();
  const auto is = [&](std::string_view operator_name, std::string_view overload) {
    return name.name == operator_name && name.overload_name == overload;
  };
  const auto number_is = [&](std::size_t position, double wanted) {
    const c10::IValue& value = call.arguments[position];
    return value.isScalar() && !value.toScalar().isComplex() &&
           value.toScalar().toDouble() == wanted;
  };
  if (is("aten::mul", "Tensor")) return Operation::kMul;
  if (is("aten::add", "Tensor") && number_is(2, 1)) return Operation::kAdd;
  if (is("aten::sub", "Tensor") && number_is(2, 1)) return Operation::kSub;
  if (is("aten::neg", "")) return Operation::kNegate;
  if (is("aten::silu", "")) return Operation::kSilu;
  if (is("aten::pow", "Tensor_Scalar") && number_is(1, 2)) return Operation::kSquare;
  // A change of the type only, not of device or layout.
  if (is("aten::_to_copy", "") && call.arguments[1].isInt() && call.arguments[2].isNone() &&
      call.arguments[3].isNone() && call.arguments[6].isNone()) {
    return Operation::kCast;
  }
  return std::nullopt;
}

bool is_binary(Operation operation) {
  return operation == Operation::kAdd || operation == Operation::kSub ||
         operation == Operation::kMul;
}

std::int64_t last_of(const TensorWindow& window) {
  return window.sizes().empty() ? 1 : window.sizes().back();
}

/// How the window's elements are broadcast to `elements` elements in rows of `inner`.
std::optional<Access> access_of(const TensorWindow& window, std::int64_t elements,
                                std::int64_t inner) {
  if (!window.is_contiguous()) return std::nullopt;
  if (window.elements() == elements && last_of(window) == inner) return Access::kFull;
  if (window.elements() == inner && last_of(window) == inner) return Access::kColumn;
  if (window.elements() * inner == elements && last_of(window) == 1) return Access::kRow;
  return std::nullopt;
}

/// The larger of two shapes, if the other broadcasts to it.
bool broadcasts_to_first(at::IntArrayRef larger, at::IntArrayRef smaller) {
  if (smaller.size() > larger.size()) return false;
  const std::size_t shift = larger.size() - smaller.size();
  for (std::size_t i = 0; i < smaller.size(); ++i) {
    if (smaller[i] != 1 && smaller[i] != larger[i + shift]) return false;
  }
  return true;
}

class ChainFinder {
 public:
  explicit ChainFinder(const RecipeBook& book) : book_(book) {}

  std::vector<std::vector<CallId>> run(const std::vector<CallId>& calls) && {
    for (const CallId id : calls) add(id);
    flush();
    return std::move(found_);
  }

 private:
  void add(CallId id) {
    const Call& call = book_.call(id);
    const std::optional<ElementwiseCall> each = elementwise(book_, call);
    const bool joins = each && each->elements == elements_ && each->inner == inner_;
    if (!joins && (each || call.traits->writes_any || reads_open(call))) flush();
    if (!each) {
      found_.push_back({id});
      return;
    }
    elements_ = each->elements;
    inner_ = each->inner;
    open_.push_back(id);
    made_.insert(each->result);
  }

  [[nodiscard]] bool reads_open(const Call& call) const {
    return std::any_of(
        call.tensors.begin(), call.tensors.end(),
        [this](const TensorArgument& argument) { return made_.contains(argument.value); });
  }

  void flush() {
    if (!open_.empty()) found_.push_back(std::exchange(open_, {}));
    made_.clear();
    elements_ = inner_ = 0;
  }

  const RecipeBook& book_;
  std::vector<std::vector<CallId>> found_;
  std::vector<CallId> open_;
  std::set<ValueId> made_;
  std::int64_t elements_ = 0;
  std::int64_t inner_ = 0;
};

}  // namespace

std::optional<ElementwiseCall> elementwise(const RecipeBook& book, const Call& call) {
  if (call.random || call.traits->writes_any || call.traits->collective || !call.shapes.empty() ||
      call.makes.size() != 1 || call.makes[0].argument >= 0 || call.makes[0].element >= 0) {
    return std::nullopt;
  }
  const std::optional<Operation> operation = operation_of(call);
  if (!operation || call.tensors.size() != (is_binary(*operation) ? 2U : 1U)) return std::nullopt;
  const TensorWindow* largest = &call.tensors[0].window;
  if (is_binary(*operation)) {
    const TensorWindow& other = call.tensors[1].window;
    if (other.dtype() != largest->dtype() || other.device() != largest->device()) {
      return std::nullopt;
    }
    const bool first = other.elements() <= largest->elements();
    if (!broadcasts_to_first(first ? largest->sizes() : other.sizes(),
                             first ? other.sizes() : largest->sizes())) {
      return std::nullopt;
    }
    if (!first) largest = &other;
  }
  ElementwiseCall found{*operation,          {},
                        largest->dtype(),    call.makes[0].value,
                        largest->elements(), last_of(*largest)};
  if (*operation == Operation::kCast) {
    found.dtype = static_cast<at::ScalarType>(call.arguments[1].toInt());
  }
  if (!ChainProgram::supports(largest->dtype()) || !ChainProgram::supports(found.dtype) ||
      found.elements < kFewest || found.inner % ChainProgram::kWidth != 0) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const auto access = access_of(call.tensors[i].window, found.elements, found.inner);
    if (!access || call.tensors[i].element >= 0) return std::nullopt;
    found.operands[i] = {&call.tensors[i], *access};
  }
  const std::size_t bytes =
      static_cast<std::size_t>(found.elements) * c10::elementSize(found.dtype);
  if (book.value(found.result).bytes != bytes) return std::nullopt;
  return found;
}

std::vector<std::vector<CallId>> chains_of(const RecipeBook& book,
                                           const std::vector<CallId>& calls) {
  return ChainFinder(book).run(calls);
}

}  // namespace spillway
