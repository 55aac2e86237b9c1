// Ranks that repeat collectives must repeat the same ones, in the same order: else they wait for
// each other, or add up what does not belong together, and nothing says so. Plans may differ
// because of a mismatch on one rank, or of measured times; so ranks compare them before each step.
#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "plan/recompute/need_order.hpp"
#include "spillway/core/error.hpp"
#include "torch/execute/session_core.hpp"

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

void SessionCore::note_group(const OperatorTraits& traits,
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
  if (!device || group.empty() || collectives_.groups.contains(group)) return;
  if (is_registered(group)) collectives_.groups.emplace(group, *device);
}

void SessionCore::agree_on_collectives() {
  collectives_.differ = false;
  const bool may_repeat = current_.plan() != nullptr && current_.plan()->recompute_collectives;
  if (!options_.rules.recompute_collectives && !may_repeat) return;
  std::erase_if(collectives_.groups, [](const auto& each) { return !is_registered(each.first); });
  if (collectives_.groups.empty()) return;
  const bool repeats = may_repeat && !controller_.records_next() && repeats_any(*current_.plan());
  // Not negative, so that its largest and its smallest can be asked for at once.
  const auto mine = static_cast<std::int64_t>(repeats ? replay_digest(*current_.plan()) >> 1U : 0);
  const RecordingPause pause;
  // By name, so in the same order on all ranks.
  for (auto& [name, group] : collectives_.groups) agree_in(name, group, mine);
  // What was found out in one group has to be known in those before it.
  for (auto& [name, group] : collectives_.groups) {
    if (group.overlaps) agree_in(name, group, mine);
  }
  if (!collectives_.differ) return;
  if (repeats) {
    count_fallback("the ranks of a group plan to repeat different collectives: none is repeated");
  }
  for (const auto& [name, group] : collectives_.groups) {
    if (group.differ) continue;
    throw InvalidArgument("recompute_collectives",
                          "ranks of a group that shares ranks with the group " + name +
                              " plan to repeat other collectives, and the ranks of " + name +
                              " do not know; give all ranks the same rules and no budget, or set "
                              "recompute_collectives = false");
  }
}

void SessionCore::agree_in(const std::string& name, Collectives::GroupState& group,
                           std::int64_t mine) {
  const std::vector<std::int64_t> words =
      largest({mine, -mine, collectives_.differ ? 1 : 0, collectives_.groups.size() > 1 ? 1 : 0},
              name, group.device);
  group.differ = words[0] != -words[1] || words[2] != 0;
  group.overlaps = words[3] != 0;
  collectives_.differ = collectives_.differ || group.differ;
}

}  // namespace spillway
