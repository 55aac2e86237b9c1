/// The device contract on the CUDA runtime. No torch; no state of its own outside the objects made
/// here. Every call works whatever the calling thread's current device is, and leaves it unchanged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spillway/core/device.hpp"

struct CUstream_st;  // What a cudaStream_t points to; spares readers the CUDA headers.

namespace spillway {

/// One GPU as the driver describes it.
struct CudaProperties {
  int index = 0;
  std::string name;
  Bytes memory;
  int compute_major = 0;
  int compute_minor = 0;
  std::string pci_bus;
  int copy_engines = 0;
};

/// What this process can see of CUDA. Never throws: without a GPU or a driver it says so.
struct CudaSystem {
  std::vector<CudaProperties> devices;
  int driver_version = 0;  ///< 13000 for 13.0; 0 without a driver.
  int runtime_version = 0;
  std::string problem;  ///< Why there are no devices; empty if there are.
};
[[nodiscard]] CudaSystem cuda_system();

class CudaDevice final : public Device {
 public:
  /// Errors: InvalidArgument if there is no such device, with what there is.
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name) override;
  [[nodiscard]] std::unique_ptr<Event> make_event(Timing timing) override;
  [[nodiscard]] std::optional<int> numa_node() const override;
  void synchronize() override;

  /// Wraps somebody else's stream, such as torch's current one. It is not owned and must outlive
  /// the wrapper. Keep one wrapper a stream: each remembers the waits already queued through it.
  [[nodiscard]] std::unique_ptr<Stream> borrow_stream(CUstream_st* handle, std::string name);

  std::byte* do_allocate(Bytes size) override;
  void do_deallocate(std::byte* data) noexcept override;
  void do_register(std::span<std::byte> memory) override;
  void do_unregister(std::byte* data) noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
