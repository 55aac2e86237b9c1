// For builds without NCCL; nccl_world.cpp is for those with it.
#include "spillway/comm/world.hpp"
#include "spillway/core/error.hpp"

namespace spillway {

bool has_nccl() noexcept { return false; }

std::unique_ptr<World> make_nccl_world(const NcclAddress& /*address*/,
                                       const WorldOptions& /*options*/) {
  throw InvalidArgument("nccl",
                        "this Spillway was built with a torch that has no NCCL; use a world "
                        "of MPI, or build with a torch for CUDA");
}

std::unique_ptr<World> make_nccl_world(std::unique_ptr<World> /*start*/,
                                       const WorldOptions& options) {
  return make_nccl_world(NcclAddress{}, options);
}

}  // namespace spillway
