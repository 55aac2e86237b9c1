/// c10d over MPI for CPU tensors: what a group of MPI ranks can do.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/mpi/channel.hpp"
#include "comm/mpi/engine.hpp"

namespace spillway::mpi {

/// Tensors are on the CPU and contiguous.
/// Threads: collectives by one at a time, sends and receives by any.
class Backend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkRef = c10::intrusive_ptr<c10d::Work>;

  Backend(std::shared_ptr<const Channel> channel, std::shared_ptr<Engine> engine);

  [[nodiscard]] const std::string getBackendName() const override;  // NOLINT: as c10d has it.
  c10::intrusive_ptr<Options> getBackendOptions() override;

  WorkRef allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkRef allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkRef broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkRef allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkRef allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkRef _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkRef reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkRef alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkRef send(Tensors& tensors, int peer, int tag) override;
  WorkRef recv(Tensors& tensors, int peer, int tag) override;
  WorkRef barrier(const c10d::BarrierOptions& options) override;

 private:
  using OperationRef = std::shared_ptr<Operation>;

  OperationRef collective(const char* name, Tensors tensors);
  WorkRef work(c10d::OpType type, std::vector<OperationRef> operations, Tensors results);

  OperationRef start_all_reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType how);
  OperationRef start_all_gather(const at::Tensor& output, const at::Tensor& input);
  OperationRef start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                    c10d::ReduceOp::RedOpType how);

  int checked_tag(const char* operation, int tag) const;

  std::shared_ptr<const Channel> channel_;
  std::shared_ptr<Engine> engine_;
  std::atomic<std::uint64_t> collectives_ = 0;
};

}  // namespace spillway::mpi
