/// The devices a program can open, and the words a user names them with.
///
/// gpu_system() and open_gpu() have two implementations of which the build links one:
/// devices_cuda.cpp where spillway::cuda is built, devices_host.cpp elsewhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/device.hpp"

namespace spillway::app {

struct Gpu {
  int index = 0;
  std::string name;
  Bytes memory;
  std::string compute;  ///< Compute capability, "9.0".
  std::string pci_bus;
  int copy_engines = 0;
};

struct GpuSystem {
  bool built_in = false;  ///< This program has the CUDA part.
  std::vector<Gpu> gpus;
  std::string driver;   ///< Version of the driver, "580.95.05"; empty if it does not say.
  std::string cuda;     ///< The newest CUDA the driver knows, "13.0"; empty without a driver.
  std::string runtime;  ///< The CUDA runtime this program uses, "13.0"; empty without one.
  std::string problem;  ///< Why there is no GPU to use; empty if there is.
};

/// Never throws: what is missing is said in `problem`.
[[nodiscard]] GpuSystem gpu_system();

/// Errors: InvalidArgument if there is no such GPU, with what there is.
[[nodiscard]] std::unique_ptr<Device> open_gpu(int index);

struct DeviceChoice {
  enum class Kind { kBest, kHost, kGpu };
  Kind kind = Kind::kBest;
  int index = 0;
};

/// Reads "best", "host", "cuda", "cuda:1" or "1".
/// Errors: InvalidArgument with the text and what is accepted.
[[nodiscard]] DeviceChoice parse_device(std::string_view text);

/// The first GPU if the choice is "best" and there is one, else the host device.
/// Errors: as open_gpu().
[[nodiscard]] std::unique_ptr<Device> open_device(DeviceChoice choice);

}  // namespace spillway::app
