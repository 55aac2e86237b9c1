/// What the dispatcher says about an operator, found once; internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

namespace spillway {

struct OperatorTraits {
  explicit OperatorTraits(const c10::OperatorHandle& operator_handle);

  c10::OperatorHandle handle;
  std::string name;          ///< "aten::mm"
  std::uint64_t signature;   ///< Of its name and overload.
  std::vector<bool> writes;  ///< By argument: whether it is changed in place.
  bool writes_any = false;
  bool random = false;         ///< Draws from a generator.
  bool uninitialised = false;  ///< Returns uninitialised memory.
  bool collective = false;
  std::string no_replay;  ///< Why it must not be repeated; empty if it may.
};

/// Null for what is not an operator of the dispatcher. Lives for ever. Any thread.
[[nodiscard]] const OperatorTraits* traits_of(const at::RecordFunction& function);

}  // namespace spillway
