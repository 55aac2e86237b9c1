/// Mixtures of experts small enough to be followed by hand, and what they should give.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "spillway/models/moe.hpp"

namespace spillway::testing {

constexpr std::int64_t kHidden = 8;

inline MlpShape small_mlp(bool gated = true) {
  return {.hidden = kHidden,
          .gated = gated,
          .scale = 0.3,
          .output_scale = 0.3,
          .options = at::TensorOptions().dtype(at::kDouble)};
}

/// Built after seeding, so that equal shapes have equal weights.
inline std::shared_ptr<Moe> make_moe(const MoeShape& shape, bool gated = true) {
  at::manual_seed(7);
  return std::make_shared<Moe>(shape, 12, small_mlp(gated));
}

inline at::Tensor some_rows(std::int64_t count, std::uint64_t seed = 3) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn({count, kHidden}, generator, at::kDouble);
}

inline at::Tensor weight(const Moe& moe, const std::string& name) {
  return moe.named_parameters()[name];
}

/// The MLP of expert `i`, as written in a book.
inline at::Tensor one_expert(const Moe& moe, std::int64_t i, const at::Tensor& x) {
  const auto parameters = moe.named_parameters();
  const at::Tensor* gate = parameters.find("experts.fc1.gate");
  const at::Tensor* up =
      gate == nullptr ? parameters.find("experts.fc1") : parameters.find("experts.fc1.up");
  const at::Tensor wide = at::linear(x, up->select(0, i));
  const at::Tensor bent =
      gate == nullptr ? at::gelu(wide, "tanh") : at::silu(at::linear(x, gate->select(0, i))) * wide;
  return at::linear(bent, parameters["experts.fc2"].select(0, i));
}

/// Every expert on every row; those that were not chosen count nothing.
inline at::Tensor by_all_experts(const Moe& moe, const MoeShape& shape, const at::Tensor& x) {
  const at::Tensor logits = at::linear(x, weight(moe, "router"));
  const at::Tensor likes = logits.softmax(-1);
  auto [best, chosen] = likes.topk(shape.chosen, -1);
  if (shape.router.softmax == RouterSoftmax::kAfter) best = best / best.sum(-1, true);
  const at::Tensor weights = at::zeros_like(likes).scatter(-1, chosen, best);
  at::Tensor sum = at::zeros_like(x);
  for (std::int64_t i = 0; i < shape.experts; ++i) {
    sum = sum + weights.select(-1, i).unsqueeze(-1) * one_expert(moe, i, x);
  }
  return sum;
}

inline void clear_gradients(const torch::nn::Module& module) {
  for (const at::Tensor& each : module.parameters()) each.mutable_grad() = at::Tensor();
}

/// What would make the host wait for a GPU, on this thread while it lives.
class HostWaits {
 public:
  HostWaits() {
    present() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin).needsInputs(true));
  }
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;
  ~HostWaits() {
    at::removeCallback(handle_);
    present() = nullptr;
  }

  /// Operators that read single values, or whose results have sizes that only data knows.
  [[nodiscard]] int waits() const noexcept { return waits_; }
  /// Tensors asked to the CPU, as here they all are already.
  [[nodiscard]] int reads() const noexcept { return reads_; }

 private:
  static HostWaits*& present() {
    thread_local HostWaits* counter = nullptr;
    return counter;
  }
  static bool waits(std::string_view name) {
    for (const std::string_view each :
         {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select",
          "aten::_unique2", "aten::unique_dim", "aten::bincount", "aten::repeat_interleave"}) {
      if (name == each) return true;
    }
    return false;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    if (waits(function.name())) ++present()->waits_;
    if (std::string_view(function.name()) != "aten::to") return nullptr;
    for (const c10::IValue& input : function.inputs()) {
      if (input.isDevice() && input.toDevice().is_cpu()) ++present()->reads_;
    }
    return nullptr;
  }

  at::CallbackHandle handle_ = 0;
  int waits_ = 0;
  int reads_ = 0;
};

}  // namespace spillway::testing
