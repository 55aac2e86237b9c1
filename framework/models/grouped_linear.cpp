#include "models/grouped_linear.hpp"

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Calls `act(expert, first row, rows)` for every expert that has rows.
template <typename Act>
void for_each_expert(at::IntArrayRef counts, const Act& act) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) act(static_cast<std::int64_t>(i), first, counts[i]);
    first += counts[i];
  }
}

/// Rows times matrices [experts, in, out].
at::Tensor multiply(const at::Tensor& x, const at::Tensor& matrices, at::IntArrayRef counts) {
  at::Tensor result = at::empty({x.size(0), matrices.size(2)}, x.options());
  for_each_expert(counts, [&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    at::Tensor part = result.narrow(0, first, rows);
    at::mm_out(part, x.narrow(0, first, rows), matrices.select(0, expert));
  });
  return result;
}

at::Tensor grouped_linear_kernel(const at::Tensor& x, const at::Tensor& weight,
                                 at::IntArrayRef counts) {
  return multiply(x, weight.transpose(1, 2), counts);
}

at::Tensor call(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef counts) {
  static const auto kOperator =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("spillway::grouped_linear", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, at::IntArrayRef)>();
  return kOperator.call(x, weight, counts);
}

class GroupedLinear final : public torch::autograd::Function<GroupedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            at::IntArrayRef counts) {
    context->save_for_backward({x, weight});
    context->saved_data["counts"] = counts.vec();
    const at::AutoDispatchBelowADInplaceOrView below;
    return call(x, weight, counts);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const std::vector<std::int64_t> counts = context->saved_data["counts"].toIntVector();
    const at::Tensor gradient = gradients[0].contiguous();
    variable_list results(3);
    if (context->needs_input_grad(0)) results[0] = multiply(gradient, weight, counts);
    if (context->needs_input_grad(1)) {
      at::Tensor all = at::zeros_like(weight, at::MemoryFormat::Contiguous);
      for_each_expert(counts, [&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
        at::Tensor part = all.select(0, expert);
        at::mm_out(part, gradient.narrow(0, first, rows).t(), x.narrow(0, first, rows));
      });
      results[1] = all;
    }
    return results;
  }
};

at::Tensor with_autograd(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef counts) {
  return GroupedLinear::apply(x, weight, counts);
}

template <c10::DeviceType device>
at::Tensor with_autocast(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef counts) {
  const c10::impl::ExcludeDispatchKeyGuard below(
      c10::DispatchKeySet(device == c10::DeviceType::CPU ? c10::DispatchKey::AutocastCPU
                                                         : c10::DispatchKey::AutocastCUDA));
  const at::ScalarType type = at::autocast::get_autocast_dtype(device);
  return call(at::autocast::cached_cast(type, x, device),
              at::autocast::cached_cast(type, weight, device), counts);
}

}  // namespace

TORCH_LIBRARY(spillway, library) {
  library.def("grouped_linear(Tensor x, Tensor weight, int[] counts) -> Tensor");
}
TORCH_LIBRARY_IMPL(spillway, CompositeExplicitAutograd, library) {
  library.impl("grouped_linear", grouped_linear_kernel);
}
TORCH_LIBRARY_IMPL(spillway, Autograd, library) { library.impl("grouped_linear", with_autograd); }
TORCH_LIBRARY_IMPL(spillway, AutocastCPU, library) {
  library.impl("grouped_linear", with_autocast<c10::DeviceType::CPU>);
}
TORCH_LIBRARY_IMPL(spillway, AutocastCUDA, library) {
  library.impl("grouped_linear", with_autocast<c10::DeviceType::CUDA>);
}

at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight,
                          const std::vector<std::int64_t>& counts) {
  const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (x.dim() != 2 || weight.dim() != 3 || x.size(0) != rows || x.size(1) != weight.size(2) ||
      weight.size(0) != static_cast<std::int64_t>(counts.size())) {
    throw InvalidArgument("grouped_linear",
                          "[" + std::to_string(rows) + ", in] rows and [" +
                              std::to_string(counts.size()) +
                              ", out, in] weights wanted for these counts; found " +
                              c10::str(x.sizes()) + " and " + c10::str(weight.sizes()));
  }
  return call(x, weight, counts);
}

}  // namespace spillway
