/// Texts of all ranks of a group.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "spillway/groups/group.hpp"

namespace spillway::app {

/// By group rank. `device`: of the tensors that the group carries.
/// Ordering: collective. Waits for the device.
[[nodiscard]] std::vector<std::string> gather_texts(const Group& group, const std::string& text,
                                                    c10::Device device);

}  // namespace spillway::app
