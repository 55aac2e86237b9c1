#include <cctype>
#include <fstream>

#include "devices/devices.hpp"
#include "spillway/cuda/cuda_device.hpp"

namespace spillway::app {
namespace {

std::string version_text(int version) {
  if (version == 0) return {};
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The first word like "580.95.05" of what the kernel module says about itself.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    const bool number = std::isdigit(static_cast<unsigned char>(word.front())) != 0;
    if (number && word.find('.') != std::string::npos) return word;
  }
  return {};
}

}  // namespace

GpuSystem gpu_system() {
  const CudaSystem found = cuda_system();
  GpuSystem system;
  system.built_in = true;
  system.driver = driver_version();
  system.cuda = version_text(found.driver_version);
  system.runtime = version_text(found.runtime_version);
  system.problem = found.problem;
  // What the runtime answers then, "driver version is insufficient", misleads.
  if (found.driver_version == 0) system.problem = "there is no NVIDIA driver";
  for (const CudaProperties& each : found.devices) {
    system.gpus.push_back(
        {each.index, each.name, each.memory,
         std::to_string(each.compute_major) + "." + std::to_string(each.compute_minor),
         each.pci_bus, each.copy_engines});
  }
  return system;
}

std::unique_ptr<Device> open_gpu(int index) { return std::make_unique<CudaDevice>(index); }

}  // namespace spillway::app
