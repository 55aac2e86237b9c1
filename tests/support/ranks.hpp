/// For test programs that run as several ranks under mpirun: the world they share. See
/// spillway_add_ranks_test() in cmake/SpillwayTest.cmake.
#pragma once

#include "spillway/comm/world.hpp"

namespace spillway::testing {

/// The one world of this process. Every case runs on all ranks, in the same order.
World& ranks();

}  // namespace spillway::testing
