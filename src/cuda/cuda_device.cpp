#include "spillway/cuda/cuda_device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <fstream>
#include <utility>

#include <cuda_runtime_api.h>

#include "check.hpp"
#include "cuda_event.hpp"
#include "cuda_stream.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"

namespace spillway {

using detail::BesideCaptures;
using detail::check;
using detail::CudaStream;
using detail::DeviceGuard;

struct CudaDevice::State {
  int index = 0;
  std::atomic<std::uint64_t> next_stream{1};
};

namespace {

std::string pci_bus_of(int index) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index) != cudaSuccess) {
    return {};
  }
  std::string bus = text.data();
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return bus;
}

/// How many devices there are; if none, why.
int count_devices(std::string& problem) {
  int count = 0;
  int driver = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (code == cudaSuccess && count > 0) return count;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    problem = "no NVIDIA driver is loaded";
  } else {
    problem = code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code);
  }
  return 0;
}

CudaProperties properties_of(int index) {
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, index), "describe device", index);
  return {index,       found.name,        Bytes(found.totalGlobalMem), found.major,
          found.minor, pci_bus_of(index), found.asyncEngineCount};
}

}  // namespace

CudaSystem cuda_system() {
  CudaSystem system;
  (void)cudaDriverGetVersion(&system.driver_version);
  (void)cudaRuntimeGetVersion(&system.runtime_version);
  const int count = count_devices(system.problem);
  try {
    for (int index = 0; index < count; ++index) system.devices.push_back(properties_of(index));
  } catch (const Error& error) {
    system.problem = error.what();
  }
  return system;
}

CudaDevice::CudaDevice(int index) : state_(std::make_unique<State>()) {
  std::string problem;
  const int count = count_devices(problem);
  if (count == 0) {
    throw InvalidArgument("cuda", "device " + std::to_string(index) +
                                      " wanted, but there is no CUDA device (" + problem +
                                      "); run `spillway doctor`, or use the host device");
  }
  if (index < 0 || index >= count) {
    throw InvalidArgument("cuda",
                          "device " + std::to_string(index) + " wanted, but there " +
                              (count == 1 ? "is only device 0"
                                          : "are only devices 0 to " + std::to_string(count - 1)) +
                              "; choose one of these");
  }
  state_->index = index;
}

CudaDevice::~CudaDevice() = default;

std::string CudaDevice::name() const { return "cuda:" + std::to_string(state_->index); }

std::unique_ptr<Stream> CudaDevice::make_stream(std::string name) {
  const DeviceGuard guard(state_->index);
  cudaStream_t handle = nullptr;
  check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "make stream", state_->index);
  return std::make_unique<CudaStream>(state_->next_stream++, state_->index, std::move(name), handle,
                                      CudaStream::Ownership::kOwned);
}

std::unique_ptr<Stream> CudaDevice::borrow_stream(CUstream_st* handle, std::string name) {
  return std::make_unique<CudaStream>(state_->next_stream++, state_->index, std::move(name), handle,
                                      CudaStream::Ownership::kBorrowed);
}

std::unique_ptr<Event> CudaDevice::make_event(Timing timing) {
  return std::make_unique<detail::CudaEvent>(state_->index, timing);
}

std::optional<int> CudaDevice::numa_node() const {
  std::ifstream file("/sys/bus/pci/devices/" + pci_bus_of(state_->index) + "/numa_node");
  std::string line;
  std::getline(file, line);
  const std::optional<std::int64_t> node = whole_number(line);
  if (!node || *node < 0) return std::nullopt;
  return static_cast<int>(*node);
}

void CudaDevice::synchronize() {
  const DeviceGuard guard(state_->index);
  check(cudaDeviceSynchronize(), "synchronize", state_->index);
}

std::byte* CudaDevice::do_allocate(Bytes size) {
  const BesideCaptures beside;
  const DeviceGuard guard(state_->index);
  void* data = nullptr;
  check(cudaMalloc(&data, size.count()), "allocate", state_->index);
  return static_cast<std::byte*>(data);
}

void CudaDevice::do_deallocate(std::byte* data) noexcept {
  const BesideCaptures beside;
  (void)cudaFree(data);
}

void CudaDevice::do_register(std::span<std::byte> memory) {
  const BesideCaptures beside;
  const DeviceGuard guard(state_->index);
  check(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable), "register",
        state_->index);
}

void CudaDevice::do_unregister(std::byte* data) noexcept {
  const BesideCaptures beside;
  (void)cudaHostUnregister(data);
}

}  // namespace spillway
