/// The error of everything that communicates with other ranks.
#pragma once

#include "spillway/core/error.hpp"

namespace spillway {

/// Another rank did not answer in time, sent something else than was wanted, or cannot be reached.
/// The text names the operation, the group and the rank. The group is not to be used afterwards:
/// its ranks may be at different operations.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

}  // namespace spillway
