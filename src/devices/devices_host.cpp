#include "devices/devices.hpp"
#include "spillway/core/error.hpp"

namespace spillway::app {

GpuSystem gpu_system() {
  GpuSystem system;
  system.problem = "this program was built without CUDA";
  return system;
}

std::unique_ptr<Device> open_gpu(int index) {
  throw InvalidArgument("cuda", "device " + std::to_string(index) +
                                    " wanted, but this program was built without CUDA; build with "
                                    "a CUDA build of torch, or use the host device");
}

}  // namespace spillway::app
