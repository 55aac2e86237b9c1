#include "torch/ranks/collective_agreement.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "plan/recompute/need_order.hpp"
#include "spillway/core/error.hpp"
#include "torch/hooks/call_recorder.hpp"

namespace spillway {
namespace {

constexpr std::string_view kFunctional = "_c10d_functional::";

bool repeats_any(const Plan& plan) {
  return std::ranges::any_of(plan.chunks, [](const ChunkPlan& chunk) {
    return std::ranges::any_of(chunk.operators, [&](const RecordedOperator& each) {
      const auto is_anchored = [&](const Anchor& anchor) { return anchor.call == each.call; };
      return each.name.starts_with(kFunctional) && std::ranges::none_of(chunk.anchors, is_anchored);
    });
  });
}

/// A group that its program has removed has no collectives any more.
bool is_registered(const std::string& group) {
  try {
    return c10d::resolve_process_group(group)->getSize() > 1;
  } catch (const c10::Error&) {
    return false;
  }
}

/// The largest of each of the ranks' words; blocks until all ranks have given theirs.
std::vector<std::int64_t> largest(const std::vector<std::int64_t>& words, const std::string& group,
                                  c10::Device device) {
  const at::NoGradGuard no_gradients;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  torch::jit::Stack stack{at::tensor(words, at::TensorOptions(at::kLong)).to(device), "max", group};
  dispatcher.findSchemaOrThrow("_c10d_functional::all_reduce", "").callBoxed(&stack);
  dispatcher.findSchemaOrThrow("_c10d_functional::wait_tensor", "").callBoxed(&stack);
  const at::Tensor result = stack.front().toTensor().cpu();
  const auto* const data = result.const_data_ptr<std::int64_t>();
  return {data, data + result.numel()};
}

}  // namespace

void CollectiveAgreement::note(const OperatorTraits& traits,
                               c10::ArrayRef<const c10::IValue> inputs) {
  if (!traits.collective || !traits.name.starts_with(kFunctional)) return;
  std::optional<c10::Device> device;
  std::string group;
  for (const c10::IValue& input : inputs) {
    if (input.isString()) group = input.toStringRef();  // The last one.
    if (device || !(input.isTensor() || input.isTensorList())) continue;
    const at::Tensor tensor = input.isTensor() ? input.toTensor() : input.toTensorVector().at(0);
    if (tensor.defined()) device = tensor.device();
  }
  if (!device || group.empty() || groups_.contains(group)) return;
  if (is_registered(group)) groups_.emplace(group, *device);
}

bool CollectiveAgreement::agree(const Plan* plan) {
  differ_ = false;
  std::erase_if(groups_, [](const auto& each) { return !is_registered(each.first); });
  if (groups_.empty()) return false;
  const bool repeats = plan != nullptr && repeats_any(*plan);
  // Not negative, so that its largest and its smallest can be asked for at once.
  const auto mine = static_cast<std::int64_t>(repeats ? replay_digest(*plan) >> 1U : 0);
  const RecordingPause pause;
  // By name, so in the same order on all ranks.
  for (auto& [name, group] : groups_) agree_in(name, group, mine);
  // What was found out in one group has to be known in those before it.
  for (auto& [name, group] : groups_) {
    if (group.overlaps) agree_in(name, group, mine);
  }
  return differ_ && repeats;
}

void CollectiveAgreement::require_known() const {
  if (!differ_) return;
  for (const auto& [name, group] : groups_) {
    if (group.differ) continue;
    throw InvalidArgument("recompute_collectives",
                          "ranks of a group that shares ranks with the group " + name +
                              " plan to repeat other collectives, and the ranks of " + name +
                              " do not know; give all ranks the same rules and no budget, or set "
                              "recompute_collectives = false");
  }
}

void CollectiveAgreement::agree_in(const std::string& name, Group& group, std::int64_t mine) {
  const std::vector<std::int64_t> words =
      largest({mine, -mine, differ_ ? 1 : 0, groups_.size() > 1 ? 1 : 0}, name, group.device);
  group.differ = words[0] != -words[1] || words[2] != 0;
  group.overlaps = words[3] != 0;
  differ_ = differ_ || group.differ;
}

}  // namespace spillway
