#include "torch/graph/fixed_storages.hpp"

#include <algorithm>

namespace spillway {

void FixedStorages::add(const at::Tensor& tensor, FixedReason reason) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto [entry, added] = fixed_.try_emplace(storage, Fixed{reason, StoragePin(storage)});
  entry->second.reason = reason;
  if (added) new_.push_back(storage);
}

void FixedStorages::number() {
  if (new_.empty()) return;
  order_.insert(order_.end(), new_.begin(), new_.end());
  new_.clear();
  std::erase_if(order_, [&](const auto* each) { return !fixed_.at(each).pin.alive(); });
  std::uint64_t number = 0;
  for (const c10::StorageImpl* const each : order_) fixed_.at(each).number = ++number;
}

std::optional<FixedReason> FixedStorages::reason_of(const c10::StorageImpl* storage) const {
  const auto found = fixed_.find(storage);
  if (found == fixed_.end()) return std::nullopt;
  return found->second.reason;
}

std::optional<FixedStorage> FixedStorages::find(const c10::StorageImpl* storage) const {
  const auto found = fixed_.find(storage);
  if (found == fixed_.end()) return std::nullopt;
  return FixedStorage{found->second.reason == FixedReason::kParameter, found->second.number};
}

}  // namespace spillway
