#include "torch/hooks/operator_traits.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "spillway/plan/profile.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_collective(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNamespaces = {
      "c10d::",     "_c10d_functional::", "c10d_functional::", "_c10d_functional_autograd::",
      "symm_mem::", "spillway_group::"};
  return std::any_of(kNamespaces.begin(), kNamespaces.end(),
                     [name](std::string_view space) { return name.starts_with(space); });
}

/// Operators of c10d write into arguments without their schema saying so.
bool is_written_by_c10d(std::string_view name, const c10::Argument& argument) {
  const std::string_view what = argument.name();
  return name.starts_with("c10d::") && (what.starts_with("output") || what.starts_with("tensor"));
}

bool is_uninitialised(std::string_view name) {
  return is_one_of(name, {"aten::empty", "aten::empty_like", "aten::empty_strided",
                          "aten::empty_permuted", "aten::new_empty", "aten::new_empty_strided"});
}

/// They change running statistics, a state of their own random numbers, or a tensor's memory,
/// without their schema saying so.
bool has_side_effects(std::string_view name) {
  return is_one_of(
      name, {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
             "aten::_batch_norm_impl_index", "aten::_batch_norm_with_update", "aten::batch_norm",
             "aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts",
             "aten::batch_norm_update_stats", "aten::_cudnn_rnn", "aten::miopen_rnn",
             "aten::_fused_moving_avg_obs_fq_helper", "aten::set_", "aten::set_data",
             "aten::resize_", "aten::resize_as_", "aten::_resize_output_"});
}

/// How many rows are exchanged differs between ranks, and so does what their plans recompute.
bool exchanges_rows(std::string_view name) { return name.ends_with("::all_to_all_single"); }

std::uint64_t signature_of(const c10::OperatorName& name) {
  Digest digest;
  digest.add_field(name.name);
  digest.add_field(name.overload_name);
  return digest.value();
}

std::string reason_against(const c10::OperatorHandle& handle, std::string_view name) {
  if (exchanges_rows(name)) return "an exchange of rows between ranks";
  if (is_collective(name)) return std::string(kCollective);
  if (has_side_effects(name)) return "an operator with side effects";
  if (handle.hasTag(at::Tag::inplace_view)) return "an operator that changes a shape in place";
  // The host would have to wait for the device to know the size.
  if (handle.hasTag(at::Tag::dynamic_output_shape) ||
      handle.hasTag(at::Tag::data_dependent_output)) {
    return "a result whose size depends on data";
  }
  return {};
}

class KnownOperators {
 public:
  const OperatorTraits* find(const at::RecordFunction& function) {
    const std::optional<c10::OperatorName> name = function.operator_name();
    if (!name) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(*name);
    if (found != known_.end()) return found->second.get();
    const std::optional<c10::OperatorHandle> handle =
        c10::Dispatcher::singleton().findSchema(*name);
    auto traits = handle ? std::make_unique<OperatorTraits>(*handle) : nullptr;
    return known_.emplace(*name, std::move(traits)).first->second.get();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<c10::OperatorName, std::unique_ptr<OperatorTraits>> known_;
};

}  // namespace

OperatorTraits::OperatorTraits(const c10::OperatorHandle& operator_handle)
    : handle(operator_handle),
      name(operator_handle.operator_name().name),
      signature(signature_of(operator_handle.operator_name())),
      random(operator_handle.hasTag(at::Tag::nondeterministic_seeded)),
      uninitialised(is_uninitialised(name)),
      collective(is_collective(name)),
      no_replay(reason_against(operator_handle, name)) {
  for (const c10::Argument& argument : handle.schema().arguments()) {
    writes.push_back((argument.alias_info() != nullptr && argument.alias_info()->isWrite()) ||
                     is_written_by_c10d(name, argument));
    writes_any = writes_any || writes.back();
  }
}

const OperatorTraits* traits_of(const at::RecordFunction& function) {
  static auto* const kKnown = new KnownOperators;  // Threads may ask until the very end.
  // The name's address is the schema's own: a key that costs nothing to make. The text is compared
  // because another library may have been loaded where an unloaded one was.
  struct Entry {
    std::string name;
    const OperatorTraits* traits = nullptr;
  };
  thread_local std::unordered_map<const void*, Entry> by_address;
  const char* const name = function.name();
  const auto found = by_address.find(name);
  if (found != by_address.end() && found->second.name == name) return found->second.traits;
  const OperatorTraits* const traits = kKnown->find(function);
  by_address[name] = {name, traits};
  return traits;
}

}  // namespace spillway
