/// The state of a Pending: c10d's work, and its name for errors.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "spillway/groups/pending.hpp"

namespace spillway {

class Pending::State {
 public:
  c10::intrusive_ptr<c10d::Work> work;
  /// Kept alive until the work is done.
  std::vector<at::Tensor> tensors;
  /// Runs after the work, in wait(): puts what was received on the host where it is wanted.
  std::function<void()> after;
  /// "all_reduce", and "group data (ranks 0 2), with rank 2".
  std::string operation;
  std::string where;
  /// Zero: no limit.
  std::chrono::milliseconds timeout{};
  /// Whether the backend continues a work that has no owner.
  bool goes_on_alone = true;
};

}  // namespace spillway
