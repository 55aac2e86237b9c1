/// The storages of parameters and registered buffers, which are never moved; internal. Under the
/// session's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/plan/profile.hpp"
#include "torch/graph/recipe_book.hpp"
#include "torch/graph/storage_pin.hpp"

namespace spillway {

class FixedStorages {
 public:
  /// Nothing for a tensor without storage. The last reason counts.
  void add(const at::Tensor& tensor, FixedReason reason);
  /// Numbers those that are alive, before a step. What replaces all parameters of a model, on
  /// another device or loaded again, gets their numbers.
  void number();

  [[nodiscard]] std::optional<FixedReason> reason_of(const c10::StorageImpl* storage) const;
  /// As recipes name it.
  [[nodiscard]] std::optional<FixedStorage> find(const c10::StorageImpl* storage) const;

 private:
  struct Fixed {
    FixedReason reason{};
    StoragePin pin;
    std::uint64_t number = 0;  // Among those alive, in the order of registration.
  };
  std::unordered_map<const c10::StorageImpl*, Fixed> fixed_;
  std::vector<const c10::StorageImpl*> order_;  // Those that have a number.
  std::vector<const c10::StorageImpl*> new_;    // Those that do not have one yet.
};

}  // namespace spillway
