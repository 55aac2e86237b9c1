/// Whether ranks whose replays repeat collectives would repeat the same ones; internal.
///
/// Ranks that repeat collectives must repeat the same ones, in the same order: else they wait for
/// each other, or add up what does not belong together, and nothing says so. Plans may differ
/// because of a mismatch on one rank, or of measured times; so ranks compare them before each step,
/// in every group whose collectives their forwards have called.
///
/// Order:   agree() is collective in all of these groups, in the order of their names. Ranks whose
///          forwards call the same collectives come to it alike.
/// Threads: one at a time; the session's lock.
/// Errors:  of a group, where another rank does not take part.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include "spillway/plan/plan.hpp"
#include "torch/hooks/operator_traits.hpp"

namespace spillway {

class CollectiveAgreement {
 public:
  /// A forward calls the operator: notes its group, if it is a collective.
  void note(const OperatorTraits& traits, c10::ArrayRef<const c10::IValue> inputs);

  /// Before a step. `plan`: what this rank's replays would repeat; null: they repeat no collective.
  /// Returns whether they must not, because other ranks would repeat others. Blocks.
  [[nodiscard]] bool agree(const Plan* plan);
  /// The step repeats collectives if plans do.
  void skip() noexcept { differ_ = false; }
  /// Errors: InvalidArgument if the ranks differ and those of another group do not know it.
  void require_known() const;

  /// In this step no collective is repeated, because some ranks plan to repeat others.
  [[nodiscard]] bool differ() const noexcept { return differ_; }

 private:
  struct Group {
    c10::Device device;     // Of what its collectives take.
    bool overlaps = false;  // One of its ranks is in other groups, too.
    bool differ = false;    // All of its ranks know that not all plan the same.
  };
  void agree_in(const std::string& name, Group& group, std::int64_t mine);

  std::map<std::string, Group> groups_;  // Of several ranks, by name.
  bool differ_ = false;
};

}  // namespace spillway
