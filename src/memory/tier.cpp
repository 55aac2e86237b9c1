#include "spillway/memory/tier.hpp"

#include "spillway/core/error.hpp"

namespace spillway {

void Tier::require_room_for(Bytes size) const {
  if (size <= capacity()) return;
  throw OutOfMemory(name(), "a buffer of " + to_string(size) + " does not fit into " +
                                to_string(capacity()) + "; raise the limit to at least " +
                                to_string(size) + " or keep such buffers on the device");
}

}  // namespace spillway
