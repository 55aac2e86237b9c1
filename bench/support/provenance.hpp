/// Where, when and by which command a result was measured.
#pragma once

#include <string>

#include "spillway/core/device.hpp"
#include "support/figure.hpp"

namespace spillway::bench {

struct Provenance {
  std::string command;  ///< As typed, without the program's folder.
  std::string commit;   ///< "3f2a9c01d4e5", with "+changes" if the tree differs; or "unknown".
  std::string date;     ///< UTC, "2026-03-01T12:00:00Z".
  std::string device;   ///< "host" or "cuda:0".
  std::string gpu;      ///< Empty for the host device.
  std::string driver;   ///< Of the GPU, with CUDA versions; empty for the host device.
  std::string cpu;
  unsigned cores = 0;
  Bytes memory;
  std::string system;  ///< Kernel and its version.
};

/// Never throws: values that cannot be read are "unknown". Runs git if `commit` is empty.
[[nodiscard]] Provenance provenance_of(const Device& device, int argc, const char* const* argv,
                                       std::string commit);

[[nodiscard]] Json to_json(const Provenance& provenance);

/// "NVIDIA H200, driver 580.95.05 (CUDA 13.0); Intel Xeon ..., 16 cores, 128.0 GiB"
[[nodiscard]] std::string hardware_text(const Provenance& provenance);

}  // namespace spillway::bench
