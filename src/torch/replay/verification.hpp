/// Compares recomputed buffers with the original ones, on the device; internal.
///
/// Nothing waits for the device until read(). Under the session's lock.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "torch/graph/recipe_book.hpp"

namespace spillway {

/// What verification says about all buffers of one recipe.
enum class Trust {
  kUnread,      ///< Backward has read none of them yet, so none was compared.
  kVerified,    ///< All of them had the original bits.
  kMismatched,  ///< One of them had others.
  kRootLost,    ///< A replay found that what it starts from is gone.
};

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
    /// None of the buffers it was recomputed from failed: the fault is its own.
    bool own = true;
    std::string reason;
  };

  /// Compares two tensors of one shape, bit for bit: one bool on the device. On any thread, without
  /// the lock.
  [[nodiscard]] static at::Tensor differs(const at::Tensor& original, const at::Tensor& recomputed);
  /// Gives a recomputed tensor the bits of the original. As differs().
  static void restore(const at::Tensor& recomputed, const at::Tensor& original);
  /// `differs`: of this buffer. `made_from`: other buffers, of other calls, that were recomputed as
  /// its inputs.
  void add(const Key& key, at::Tensor differs, std::set<Key> made_from) {
    comparisons_.push_back({key, std::move(differs), std::move(made_from)});
  }

  /// The buffer could not be recomputed at all.
  void mark_unrecomputable(const Key& key, const std::string& reason,
                           std::set<Key> made_from = {}) {
    unrecomputable_[key] = {reason, std::move(made_from)};
  }

  /// Waits for the comparisons and returns the buffers that failed, in order. Clears them.
  [[nodiscard]] std::vector<Failure> read();

 private:
  struct Comparison {
    Key key;
    at::Tensor differs;  // One bool on the device.
    std::set<Key> made_from;
  };
  std::vector<Comparison> comparisons_;
  [[nodiscard]] static std::set<Key> different(const std::vector<Comparison>& comparisons);

  struct Unrecomputable {
    std::string reason;
    std::set<Key> made_from;
  };
  std::map<Key, Unrecomputable> unrecomputable_;
};

}  // namespace spillway
