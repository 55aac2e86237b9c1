#include "spillway/comm/world.hpp"

#include <cstdlib>
#include <exception>
#include <numeric>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// The number in an environment variable; 0 if there is none.
int number_in(const char* variable) {
  const char* text = std::getenv(variable);      // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? 0 : std::atoi(text);  // NOLINT(cert-err34-c)
}

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

/// How many ranks mpirun (Open MPI), mpiexec (MPICH, Intel) or srun started.
int started_by_mpi() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const int size = number_in(variable); size > 0) return size;
  }
  return 0;
}

}  // namespace

Group World::everyone() {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group("world", {ranks});
}

void run_guarded(World& world, const std::function<void()>& body) {
  if (world.size() == 1) return body();
  try {
    body();
  } catch (const std::exception& error) {
    world.abort(error.what());
  } catch (...) {
    world.abort("something that is no std::exception was thrown");
  }
}

std::unique_ptr<World> detect_world(const WorldOptions& options) {
  if (const int started = started_by_mpi(); started > 1) {
    auto world = make_mpi_world(options);
    const int found = world->size();
    if (found == started) return world;
    world.reset();  // Before the throw, which it would take for the reason to end the job.
    throw CommunicationError(
        "world", std::to_string(started) + " ranks were started, but MPI sees " +
                     std::to_string(found) +
                     "; what started them belongs to another MPI than libspillway_mpi.so: use the "
                     "mpirun of that MPI, or srun with --mpi=pmix");
  }
  if (started_by_mpi() == 0 && number_in("WORLD_SIZE") > 1 && is_set("RANK") &&
      is_set("MASTER_ADDR")) {
    // As single ranks they would all do the same work and overwrite each other's files.
    throw InvalidArgument("world",
                          "torchrun started " + std::to_string(number_in("WORLD_SIZE")) +
                              " ranks of this program, which uses MPI; start it with mpirun -n " +
                              std::to_string(number_in("WORLD_SIZE")) +
                              ", or the Python package with torchrun");
  }
  return make_single_world();
}

}  // namespace spillway
