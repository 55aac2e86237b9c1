/// Some ranks of a job that communicate: collectives, and tensors sent from one to another.
///
///   Group data = world->group("data", topology.partition(Axis::kData));
///   data.all_reduce(gradient);
///   Pending sent = pipeline.send(activation, pipeline.rank() + 1, tag);
///
/// A Group is a c10d::ProcessGroup with the ranks of its members, made by the MPI plugin,
/// NCCL, or torch.distributed. World makes them (spillway/comm/world.hpp).
///
/// Order:   all members call the same collectives in the same order. Sends and receives between two
///          ranks match by tag, those with the same tag in the order of the calls, and are not
///          ordered against collectives. Groups are independent.
/// Tensors: dense, on the CPU or a CUDA device. NCCL takes CUDA tensors only; all others take both,
///          CUDA tensors through host memory, which synchronises the host. What is written must
///          be contiguous. Until an operation is done its tensors must not be
///          written, nor read if it writes them. Nothing here is seen by autograd.
/// Bits:    a collective gives the same bits on all members and in every run with the same groups.
///          With MPI each element is summed in the order of the group ranks, so that the bits do
///          not depend on how tensors are split into pieces either. Sums of bfloat16 and half are
///          made in float and rounded once (MPI); gloo and NCCL sum as they do.
/// Threads: different groups may be used at once by different threads. Of one group, collectives by
///          one thread at a time; sends and receives by any.
/// Errors:  InvalidArgument for what can be seen here; CommunicationError for what others did.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "spillway/groups/error.hpp"
#include "spillway/groups/pending.hpp"

namespace c10d {
class ProcessGroup;
}

namespace spillway {

enum class Reduce { kSum, kProduct, kMin, kMax };

/// A value, cheap to copy; copies are the same group.
class Group {
 public:
  /// This rank alone. Every collective returns at once.
  explicit Group(int world_rank = 0) noexcept;
  /// `world_ranks`: the members by group rank. `timeout`: the longest that a Pending waits; zero:
  /// as long as the backend lets it. CUDA tensors travel through host memory unless the process
  /// group has NCCL.
  /// Errors: InvalidArgument if there is no process group, or it has another size.
  explicit Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::vector<int> world_ranks,
                 std::string name = "group", std::chrono::milliseconds timeout = {});

  /// This rank's position among the members.
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// World ranks by group rank.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept;
  /// As given to World::group(); for texts.
  [[nodiscard]] const std::string& name() const noexcept;
  /// For functional collectives, which autograd sees; null for a group of one.
  [[nodiscard]] const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const noexcept;

  /// Replaces `tensor` on every member by the reduction over all of them.
  void all_reduce(at::Tensor& tensor, Reduce reduce = Reduce::kSum) const;
  [[nodiscard]] Pending all_reduce_async(at::Tensor& tensor, Reduce reduce = Reduce::kSum) const;

  /// Replaces `tensor` on every member by that of the member `root` (a group rank).
  void broadcast(at::Tensor& tensor, int root) const;
  [[nodiscard]] Pending broadcast_async(at::Tensor& tensor, int root) const;

  /// The members' tensors, which have equal shapes: [size(), ...], stacked by group rank.
  [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) const;
  /// As all_gather() into `output`, which has size() times the elements of `tensor`.
  [[nodiscard]] Pending all_gather_async(at::Tensor& output, const at::Tensor& tensor) const;

  /// Reduces `input` [size(), ...] over all members and gives each the row of its group rank.
  [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& input,
                                          Reduce reduce = Reduce::kSum) const;
  /// As reduce_scatter() into `output`; `input` has size() times its elements.
  [[nodiscard]] Pending reduce_scatter_async(at::Tensor& output, const at::Tensor& input,
                                             Reduce reduce = Reduce::kSum) const;

  /// Sends input_splits[i] rows (of the first dimension) to member i, in order, and gives the rows
  /// from all members in the order of their group ranks; output_splits[i] of them come from member
  /// i. Splits may be zero. Members must agree: what i expects of j is what j sends to i.
  [[nodiscard]] at::Tensor all_to_all(const at::Tensor& input,
                                      const std::vector<std::int64_t>& input_splits,
                                      const std::vector<std::int64_t>& output_splits) const;

  /// Sends to, or receives from, the group rank `peer`, which is not this one. Both sides agree on
  /// `tag` (0 to 2^20), type and number of elements. `tensor` of receive() is contiguous.
  [[nodiscard]] Pending send(const at::Tensor& tensor, int peer, int tag) const;
  [[nodiscard]] Pending receive(const at::Tensor& tensor, int peer, int tag) const;

  /// Returns when all members have called it.
  void barrier() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace spillway
