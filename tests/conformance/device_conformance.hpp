/// What every device must do. Add device_conformance.cpp to a test program and instantiate:
///   INSTANTIATE_TEST_SUITE_P(Host, DeviceConformance, Values(DeviceCase{...}), case_name);
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "spillway/core/device.hpp"

namespace spillway::testing {

struct DeviceCase {
  std::string name;
  /// Null where there is no such device; the cases are skipped then.
  std::function<std::shared_ptr<Device>()> make;
  /// An operation that fails when it runs fails the streams that wait for it. (A CUDA host function
  /// cannot fail its stream; a CUDA copy that does ends the process's use of the device.)
  bool errors_travel = true;
  std::string reason_to_skip = {};

  friend std::ostream& operator<<(std::ostream& out, const DeviceCase& value) {
    return out << value.name;
  }
};

inline std::string case_name(const ::testing::TestParamInfo<DeviceCase>& info) {
  return info.param.name;
}

class DeviceConformance : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    device_ = GetParam().make();
    if (device_ == nullptr) GTEST_SKIP() << GetParam().reason_to_skip;
  }

  [[nodiscard]] Device& device() { return *device_; }

 private:
  std::shared_ptr<Device> device_;
};

}  // namespace spillway::testing
