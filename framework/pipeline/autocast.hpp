/// Autocast around a region of code.
#pragma once

#include <optional>

#include <ATen/autocast_mode.h>

namespace spillway {

/// Autocast to `type` for operators on `device` on this thread until destroyed; nothing without a
/// type. Casts of weights are kept for the region and dropped with it.
class AutocastRegion {
 public:
  AutocastRegion(at::DeviceType device, std::optional<at::ScalarType> type)
      : device_(device), on_(type.has_value()) {
    if (!on_) return;
    was_enabled_ = at::autocast::is_autocast_enabled(device);
    was_type_ = at::autocast::get_autocast_dtype(device);
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, *type);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;
  ~AutocastRegion() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_type_);
  }

 private:
  at::DeviceType device_;
  bool on_;
  bool was_enabled_ = false;
  at::ScalarType was_type_ = at::kFloat;
};

}  // namespace spillway
