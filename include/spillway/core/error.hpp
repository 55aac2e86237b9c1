/// The kinds of error Spillway throws. Every text reads "[operation] what was wanted, what was
/// found; what to do".
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace spillway {

class Error : public std::runtime_error {
 public:
  Error(std::string_view operation, std::string_view detail)
      : std::runtime_error("[" + std::string(operation) + "] " + std::string(detail)),
        operation_(operation) {}

  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }

 private:
  std::string operation_;
};

/// The caller asked for something that has no meaning; asking again the same way fails again.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// Memory of some kind (device, host, locked pages, address space) is not available.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device operation failed. `operation` names it; on CUDA the device may be unusable afterwards.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A file or a part of the operating system could not be read or written.
class IoError : public Error {
 public:
  using Error::Error;
};

/// No plan fits the budget; the text names the smallest one that would.
class PlanInfeasible : public Error {
 public:
  using Error::Error;
};

/// Verification found that a step's results are wrong; the text names the tensors. Discard the
/// step's gradients and repeat it.
class VerificationError : public Error {
 public:
  using Error::Error;
};

/// A configuration file is wrong; the text names file, line and key.
class ConfigError : public Error {
 public:
  using Error::Error;
};

}  // namespace spillway
