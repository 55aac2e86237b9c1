/// The ranks of a job, and how groups of them are made.
///
///   auto world = spillway::detect_world();
///   spillway::Topology topology(world->size(), {.data = 0, .pipeline = 4});
///   spillway::run_guarded(*world, [&] {
///     spillway::Group stages = world->group("pipeline", topology.partition(Axis::kPipeline));
///     ...
///   });
///
/// Kinds: one rank; MPI, for mpirun and srun; NCCL, for CUDA tensors; the groups of
/// torch.distributed. See docs/parallel.md.
///
/// Lifetime: groups may be kept longer than the world but not used after it. The end of a world of
///           MPI is collective: it waits until every rank is there and then ends MPI, which cannot
///           be started again in this process. While an exception unwinds, the end of a world of
///           MPI or NCCL ends the job instead.
/// Threads:  one at a time, but abort() by any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/groups/group.hpp"

namespace spillway {

struct WorldOptions {
  /// The longest that a wait for other ranks may take; then it throws and names them. Zero:
  /// no limit. Other ranks may load data, plan, or write a checkpoint meanwhile.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  /// The longest that a rank may show no sign of life. A thread of every rank shows it, whatever
  /// the others do, so only a rank that was stopped, or whose machine was lost, is silent. Then the
  /// rank that watches it ends the job and names it. Zero: no watching. MPI only.
  std::chrono::milliseconds silence{std::chrono::minutes(1)};
  /// Larger messages travel in pieces of this size. MPI only; at most 2 GiB - 1.
  Bytes largest_message{1ULL << 30U};
};

class World {
 public:
  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// The members' list of `partition` that holds this rank, as a group; its position there is
  /// the group rank. Every rank is in exactly one list; lists of one rank give a group without
  /// communication.
  /// Ordering: collective over the whole world, with the same arguments everywhere.
  /// Errors:   InvalidArgument if a rank is in no list or twice; CommunicationError if a rank asked
  ///           for something else, or did not come.
  [[nodiscard]] virtual Group group(const std::string& name,
                                    const std::vector<std::vector<int>>& partition) = 0;
  /// All ranks as one group.
  [[nodiscard]] Group everyone();

  /// Ends every rank of the job, with a text on standard error that names this one. Does not
  /// return, and runs no destructors.
  [[noreturn]] virtual void abort(const std::string& why) noexcept = 0;
};

/// Runs `body`. An exception ends the whole job with its text, because other ranks wait for this
/// one; alone in the world it is passed on.
void run_guarded(World& world, const std::function<void()>& body);

/// One rank.
[[nodiscard]] std::unique_ptr<World> make_single_world();

/// The ranks that mpirun or srun started, groups for CPU tensors. Loads libspillway_mpi.so: the
/// file that SPILLWAY_MPI_PLUGIN names, or from the folder of the program, ../lib beside it, or the
/// folder above it.
/// Errors: CommunicationError if the plugin or MPI is not there, with the paths that were tried.
[[nodiscard]] std::unique_ptr<World> make_mpi_world(const WorldOptions& options = {});

/// Where the ranks of NCCL meet. The variables are those of torchrun.
struct NcclAddress {
  std::string host;    ///< MASTER_ADDR: where rank 0 listens
  int port = 0;        ///< MASTER_PORT
  int rank = 0;        ///< RANK
  int size = 1;        ///< WORLD_SIZE
  int local_rank = 0;  ///< LOCAL_RANK: the CUDA device

  /// Errors: InvalidArgument that names the variable that is missing or no number.
  [[nodiscard]] static NcclAddress from_environment();
};

/// Whether this build has NCCL.
[[nodiscard]] bool has_nccl() noexcept;
/// Groups for CUDA tensors over NCCL. If threads other than that of the address use NCCL,
/// they set the device of `local_rank` as current first.
/// Errors: InvalidArgument if this build has no NCCL or there is no such device.
[[nodiscard]] std::unique_ptr<World> make_nccl_world(const NcclAddress& address,
                                                     const WorldOptions& options = {});
/// The same with ranks and address from `start`, which still ends the job.
[[nodiscard]] std::unique_ptr<World> make_nccl_world(std::unique_ptr<World> start,
                                                     const WorldOptions& options = {});

/// Makes a group of torch.distributed with these members, on all ranks in the same order, and gives
/// the name under which c10d knows it. Called for every list of a partition, as
/// torch.distributed.new_group() requires it.
using NewTorchGroup = std::function<std::string(const std::vector<int>& ranks)>;
/// What ends the job; called by abort(), which ends this process when it returns.
using TorchAbort = std::function<void(const std::string& why)>;
/// Groups that torch.distributed makes. Each is kept alive as long as a Group of it is.
[[nodiscard]] std::unique_ptr<World> make_torch_world(int rank, int size, NewTorchGroup new_group,
                                                      TorchAbort abort = {},
                                                      const WorldOptions& options = {});

/// MPI if mpirun or srun started this process with more than one rank, else one rank.
/// Errors: as make_mpi_world(); InvalidArgument if torchrun started several ranks, which would all
/// do the same work.
[[nodiscard]] std::unique_ptr<World> detect_world(const WorldOptions& options = {});

}  // namespace spillway
