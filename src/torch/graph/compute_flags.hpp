/// The process's settings that decide which kernel an operator runs; internal.
#pragma once

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>

namespace spillway {

/// Read in the forward pass, applied while its operators are repeated.
struct ComputeFlags {
  [[nodiscard]] static ComputeFlags now();
  void apply() const;

  bool operator==(const ComputeFlags&) const = default;

  at::ScalarType default_dtype = at::kFloat;
  bool deterministic = false;
  bool warn_only = false;
  bool cudnn = true;
  bool cudnn_deterministic = false;
  bool cudnn_benchmark = false;
  bool flash_attention = true;
  bool efficient_attention = true;
  bool math_attention = true;
  bool cudnn_attention = true;
};

/// Applies flags if they differ from the present ones, and restores those when destroyed.
class AppliedFlags {
 public:
  explicit AppliedFlags(const ComputeFlags& flags);
  AppliedFlags(const AppliedFlags&) = delete;
  AppliedFlags& operator=(const AppliedFlags&) = delete;
  ~AppliedFlags();

 private:
  ComputeFlags before_;
  bool differ_;
};

}  // namespace spillway
