/// Compares buffers that were made again with what they should be, on the device; internal.
///
/// Nothing waits for the device until read(). Called under the session's lock or by the one thread
/// that replays.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "torch/graph/recipe_book.hpp"

namespace spillway {

class Verification {
 public:
  /// Identifies a buffer over all passes of a step.
  struct Key {
    int chunk = 0;
    int buffer = 0;

    auto operator<=>(const Key&) const = default;
  };

  struct Failure {
    Key key;
    /// Nothing that it was made from differs as well: the fault is its own.
    bool own = true;
    std::string reason;
  };

  /// Compares two tensors of one shape, bit for bit.
  /// `made_from`: other buffers that were made again on the way, by other calls.
  void compare(const Key& key, const at::Tensor& original, const at::Tensor& recomputed,
               std::set<Key> made_from);

  /// It could not be made again at all.
  void refuse(const Key& key, const std::string& reason, std::set<Key> made_from = {}) {
    refused_[key] = {reason, std::move(made_from)};
  }

  /// Waits for the comparisons, and says which buffers failed, in order. Forgets them.
  [[nodiscard]] std::vector<Failure> read();

 private:
  struct Comparison {
    Key key;
    at::Tensor differs;  // One bool on the device.
    std::set<Key> made_from;
  };
  std::vector<Comparison> comparisons_;
  [[nodiscard]] static std::set<Key> different(const std::vector<Comparison>& comparisons);

  struct Refusal {
    std::string reason;
    std::set<Key> made_from;
  };
  std::map<Key, Refusal> refused_;
};

}  // namespace spillway
