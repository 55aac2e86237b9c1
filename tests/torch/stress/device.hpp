/// Where random programs run: on the CPU, or on the CUDA device with SPILLWAY_TEST_DEVICE=cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace spillway::testing {

/// Errors: InvalidArgument for a name that is not known.
[[nodiscard]] at::Device device();
[[nodiscard]] bool on_cuda();
/// Whether it was asked for, and there is none.
[[nodiscard]] bool device_is_missing();

/// On the device.
[[nodiscard]] at::TensorOptions integers();
[[nodiscard]] at::TensorOptions booleans();

[[nodiscard]] at::Generator new_generator(std::uint64_t seed);

// Memory of the device, without an operator that a session sees.
void copy_to_host(void* to, const void* from, std::size_t bytes);
void copy_from_host(void* to, const void* from, std::size_t bytes);
void fill(void* memory, std::uint8_t value, std::size_t bytes);

/// Runs `work` on another stream, after what the current one has been given; the current one goes
/// on after it. `slow`: behind long kernels. `read` are the tensors that it reads. On the CPU it
/// just runs.
[[nodiscard]] at::Tensor on_another_stream(bool slow, const std::vector<at::Tensor>& read,
                                           const std::function<at::Tensor()>& work);

}  // namespace spillway::testing
