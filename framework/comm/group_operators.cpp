#include "comm/group_operators.hpp"

#include <map>
#include <mutex>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// The groups that operators name: a recorded call refers to them by name only.
class NamedGroups {
 public:
  std::string name_of(const Group& group) {
    const std::string& name = group.process_group()->getGroupName();
    const std::lock_guard lock(mutex_);
    const auto [found, added] = groups_.try_emplace(name, group);
    if (!added && found->second.process_group() != group.process_group()) found->second = group;
    return name;
  }

  Group find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(name);
    if (found != groups_.end()) return found->second;
    throw InvalidArgument("collective", "there is no group of the name " + name);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Group> groups_;
};

NamedGroups& named_groups() {
  static auto* const kGroups = new NamedGroups;  // Threads of autograd may ask until the very end.
  return *kGroups;
}

at::Tensor all_reduce(const at::Tensor& x, bool largest, std::string group) {  // NOLINT
  const at::AutoDispatchBelowAutograd below;
  at::Tensor result = x.clone(at::MemoryFormat::Contiguous);
  named_groups().find(group).all_reduce(result, largest ? Reduce::kMax : Reduce::kSum);
  return result;
}

at::Tensor all_gather(const at::Tensor& x, std::string group) {  // NOLINT
  const at::AutoDispatchBelowAutograd below;
  // [ranks, batch, part, ...], of which the sequence is that of the ranks and their parts.
  const at::Tensor parts = named_groups().find(group).all_gather(x.contiguous());
  return parts.movedim(0, 1).flatten(1, 2).contiguous();
}

at::Tensor reduce_scatter(const at::Tensor& x, std::string group) {  // NOLINT
  const at::AutoDispatchBelowAutograd below;
  const Group members = named_groups().find(group);
  require_equal_parts(members, x);
  const std::int64_t part = x.size(1) / members.size();
  const at::Tensor rows = x.unflatten(1, {members.size(), part}).movedim(1, 0).contiguous();
  return members.reduce_scatter(rows);
}

}  // namespace

TORCH_LIBRARY(spillway_group, library) {
  const auto define = [&](const char* schema, auto&& kernel) {
    library.def(schema, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
  };
  define("all_reduce(Tensor x, bool largest, str group) -> Tensor", TORCH_FN(all_reduce));
  define("all_gather(Tensor x, str group) -> Tensor", TORCH_FN(all_gather));
  define("reduce_scatter(Tensor x, str group) -> Tensor", TORCH_FN(reduce_scatter));
}

void require_equal_parts(const Group& group, const at::Tensor& x) {
  if (x.dim() >= 2 && x.size(1) % group.size() == 0) return;
  throw InvalidArgument("sequence", "a sequence of " + std::to_string(x.dim() < 2 ? 1 : x.size(1)) +
                                        " cannot be divided into " + std::to_string(group.size()) +
                                        " equal parts; give a multiple of that as its length");
}

at::Tensor call_all_reduce(const Group& group, const at::Tensor& x, Reduce reduce) {
  if (reduce != Reduce::kSum && reduce != Reduce::kMax) {
    throw InvalidArgument("all_reduce", "only sums and the largest are operators");
  }
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("spillway_group::all_reduce", "")
                                    .typed<at::Tensor(const at::Tensor&, bool, std::string)>();
  return kOperator.call(x, reduce == Reduce::kMax, named_groups().name_of(group));
}

at::Tensor call_all_gather(const Group& group, const at::Tensor& x) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("spillway_group::all_gather", "")
                                    .typed<at::Tensor(const at::Tensor&, std::string)>();
  return kOperator.call(x, named_groups().name_of(group));
}

at::Tensor call_reduce_scatter(const Group& group, const at::Tensor& x) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("spillway_group::reduce_scatter", "")
                                    .typed<at::Tensor(const at::Tensor&, std::string)>();
  return kOperator.call(x, named_groups().name_of(group));
}

}  // namespace spillway
