#include "spillway/parallel/group.hpp"

#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "mpi_plugin.hpp"
#include "pending_state.hpp"

namespace spillway {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

constexpr int kLargestTag = 1 << 20;

c10d::ReduceOp::RedOpType c10d_reduce(Reduce reduce) {
  switch (reduce) {
    case Reduce::kSum:
      return c10d::ReduceOp::SUM;
    case Reduce::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case Reduce::kMin:
      return c10d::ReduceOp::MIN;
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::UNUSED;
}

}  // namespace

struct Group::State {
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::vector<int> ranks;
  std::string name;
  std::chrono::milliseconds timeout{};
  int rank = 0;
  Backend cpu;   // Null if there is none for CPU tensors.
  Backend cuda;  // Null unless it takes them without a way through host memory.
  bool goes_on_alone = false;

  [[nodiscard]] bool alone() const { return ranks.size() == 1; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }

  [[nodiscard]] std::string text() const {
    std::string text = "group " + name + " (ranks";
    for (const int member : ranks) text += ' ' + std::to_string(member);
    return text + ')';
  }

  [[noreturn]] void refuse(const char* operation, const std::string& detail) const {
    throw InvalidArgument(operation, text() + ": " + detail);
  }

  [[nodiscard]] const Backend& backend_for(const char* operation, const at::Tensor& tensor) const {
    if (tensor.is_cuda() && cuda != nullptr) return cuda;
    if (cpu == nullptr) {
      refuse(operation, "the tensor is on " + tensor.device().str() +
                            ", but the group is for CUDA tensors; move it, or make the group with "
                            "a backend for the CPU as well");
    }
    return cpu;
  }

  /// What the backend works on instead of `tensor`.
  [[nodiscard]] at::Tensor staged(const at::Tensor& tensor, const Backend& backend) const {
    return tensor.is_cpu() || backend == cuda ? tensor : tensor.cpu();
  }

  void check_member(const char* operation, int member) const {
    if (member < 0 || member >= size()) {
      refuse(operation, "there is no group rank " + std::to_string(member) + "; they are 0 to " +
                            std::to_string(size() - 1));
    }
  }

  void check_peer(const char* operation, int peer, int tag) const {
    check_member(operation, peer);
    if (peer == rank) refuse(operation, "a rank cannot send to itself, nor receive from itself");
    if (tag < 0 || tag > kLargestTag) {
      refuse(operation, "the tag is " + std::to_string(tag) + "; it must be 0 to " +
                            std::to_string(kLargestTag));
    }
  }

  void check_written(const char* operation, const at::Tensor& tensor) const {
    if (!tensor.defined()) refuse(operation, "there is no tensor");
    if (!tensor.is_contiguous()) {
      refuse(operation, "the tensor that is written to is not contiguous; pass a contiguous one");
    }
  }

  /// Of `work` on `host`, which is `target` or stands for it.
  [[nodiscard]] Pending pending(c10::intrusive_ptr<c10d::Work> work, const char* operation,
                                std::vector<at::Tensor> tensors, const std::string& with,
                                const at::Tensor& target, const at::Tensor& host) const {
    auto state = std::make_unique<Pending::State>();
    state->work = std::move(work);
    state->tensors = std::move(tensors);
    state->operation = operation;
    state->where = text() + with;
    state->timeout = timeout;
    state->goes_on_alone = goes_on_alone || (host.defined() && host.is_cuda());
    if (target.defined() && target.device() != host.device()) {
      state->after = [target, host] { target.copy_(host); };
    }
    return Pending(std::move(state));
  }
};

Group::Group(int world_rank)
    : state_([&] {
        auto state = std::make_shared<State>();
        state->ranks = {world_rank};
        state->name = "of one";
        return state;
      }()) {}

Group::Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::vector<int> world_ranks,
             std::string name, std::chrono::milliseconds timeout) {
  auto state = std::make_shared<State>();
  state->process_group = std::move(process_group);
  state->ranks = std::move(world_ranks);
  state->name = std::move(name);
  state->timeout = timeout;
  if (state->process_group == nullptr) state->refuse("group", "there is no process group");
  c10d::ProcessGroup& group = *state->process_group;
  if (group.getSize() != state->size()) {
    state->refuse("group", "the process group has " + std::to_string(group.getSize()) +
                               " members; the ranks must be those of its members");
  }
  state->rank = group.getRank();
  for (const c10::Device device : group.getDeviceTypes()) {
    const Backend backend = group.getBackend(device.type());
    if (device.is_cpu()) state->cpu = backend;
    if (device.is_cuda() && backend->getBackendName() == "nccl") state->cuda = backend;
  }
  state->goes_on_alone = state->cpu != nullptr && state->cpu->getBackendName() == kMpiBackendName;
  state_ = std::move(state);
}

int Group::rank() const noexcept { return state_->rank; }
int Group::size() const noexcept { return state_->size(); }
const std::vector<int>& Group::ranks() const noexcept { return state_->ranks; }
const std::string& Group::name() const noexcept { return state_->name; }

const c10::intrusive_ptr<c10d::ProcessGroup>& Group::process_group() const noexcept {
  return state_->process_group;
}

void Group::all_reduce(at::Tensor& tensor, Reduce reduce) const {
  all_reduce_async(tensor, reduce).wait();
}

Pending Group::all_reduce_async(at::Tensor& tensor, Reduce reduce) const {
  state_->check_written("all_reduce", tensor);
  if (state_->alone()) return {};
  const Backend& backend = state_->backend_for("all_reduce", tensor);
  std::vector<at::Tensor> tensors{state_->staged(tensor.detach(), backend)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_reduce(reduce);
  auto work = backend->allreduce(tensors, options);
  const at::Tensor host = tensors[0];
  return state_->pending(std::move(work), "all_reduce", std::move(tensors), "", tensor.detach(),
                         host);
}

void Group::broadcast(at::Tensor& tensor, int root) const { broadcast_async(tensor, root).wait(); }

Pending Group::broadcast_async(at::Tensor& tensor, int root) const {
  state_->check_written("broadcast", tensor);
  state_->check_member("broadcast", root);
  if (state_->alone()) return {};
  const Backend& backend = state_->backend_for("broadcast", tensor);
  std::vector<at::Tensor> tensors{state_->staged(tensor.detach(), backend)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  auto work = backend->broadcast(tensors, options);
  const at::Tensor host = tensors[0];
  return state_->pending(
      std::move(work), "broadcast", std::move(tensors),
      ", from rank " + std::to_string(state_->ranks[static_cast<std::size_t>(root)]),
      tensor.detach(), host);
}

at::Tensor Group::all_gather(const at::Tensor& tensor) const {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin(), size());
  at::Tensor output = at::empty(sizes, tensor.options());
  all_gather_async(output, tensor).wait();
  return output;
}

Pending Group::all_gather_async(at::Tensor& output, const at::Tensor& tensor) const {
  state_->check_written("all_gather", output);
  if (output.numel() != tensor.numel() * size() || output.dtype() != tensor.dtype()) {
    state_->refuse("all_gather", "the output has " + std::to_string(output.numel()) +
                                     " elements of " + std::string(output.dtype().name()) +
                                     "; it must have " + std::to_string(tensor.numel()) + " x " +
                                     std::to_string(size()) + " of " +
                                     std::string(tensor.dtype().name()));
  }
  if (state_->alone()) {
    output.detach().view(-1).copy_(tensor.detach().reshape(-1));
    return {};
  }
  const Backend& backend = state_->backend_for("all_gather", tensor);
  at::Tensor input = state_->staged(tensor.detach().contiguous(), backend);
  at::Tensor host = state_->staged(output.detach(), backend);
  // Some backends look at the shapes.
  at::Tensor flat_input = input.view(-1);
  at::Tensor flat_host = host.view(-1);
  auto work = backend->_allgather_base(flat_host, flat_input);
  return state_->pending(std::move(work), "all_gather", {host, input}, "", output.detach(), host);
}

at::Tensor Group::reduce_scatter(const at::Tensor& input, Reduce reduce) const {
  if (input.dim() == 0 || input.size(0) != size()) {
    state_->refuse("reduce_scatter", "the input has " +
                                         std::to_string(input.dim() == 0 ? 1 : input.size(0)) +
                                         " rows; it must have one for each member");
  }
  at::Tensor output = at::empty(input.sizes().slice(1), input.options());
  reduce_scatter_async(output, input, reduce).wait();
  return output;
}

Pending Group::reduce_scatter_async(at::Tensor& output, const at::Tensor& input,
                                    Reduce reduce) const {
  state_->check_written("reduce_scatter", output);
  if (input.numel() != output.numel() * size() || output.dtype() != input.dtype()) {
    state_->refuse("reduce_scatter", "the input has " + std::to_string(input.numel()) +
                                         " elements of " + std::string(input.dtype().name()) +
                                         "; it must have " + std::to_string(output.numel()) +
                                         " x " + std::to_string(size()) + " of " +
                                         std::string(output.dtype().name()));
  }
  if (state_->alone()) {
    output.detach().view(-1).copy_(input.detach().reshape(-1));
    return {};
  }
  const Backend& backend = state_->backend_for("reduce_scatter", input);
  at::Tensor staged_input = state_->staged(input.detach().contiguous(), backend);
  at::Tensor host = state_->staged(output.detach(), backend);
  at::Tensor flat_input = staged_input.view(-1);
  at::Tensor flat_host = host.view(-1);
  c10d::ReduceScatterOptions options;
  options.reduceOp = c10d_reduce(reduce);
  auto work = backend->_reduce_scatter_base(flat_host, flat_input, options);
  return state_->pending(std::move(work), "reduce_scatter", {host, staged_input}, "",
                         output.detach(), host);
}

at::Tensor Group::all_to_all(const at::Tensor& input, const std::vector<std::int64_t>& input_splits,
                             const std::vector<std::int64_t>& output_splits) const {
  const auto total = [&](const std::vector<std::int64_t>& splits, const char* which) {
    std::int64_t sum = 0;
    for (const std::int64_t split : splits) {
      if (split < 0) state_->refuse("all_to_all", "a split is negative; rows cannot be");
      sum += split;
    }
    if (splits.size() != state_->ranks.size()) {
      state_->refuse("all_to_all", std::string("there are ") + std::to_string(splits.size()) + ' ' +
                                       which + " splits; one is wanted for each member");
    }
    return sum;
  };
  const std::int64_t rows_in = total(input_splits, "input");
  const std::int64_t rows_out = total(output_splits, "output");
  if (input.dim() == 0 || input.size(0) != rows_in) {
    state_->refuse("all_to_all", "the input splits make up " + std::to_string(rows_in) +
                                     " rows, the input has " +
                                     std::to_string(input.dim() == 0 ? 1 : input.size(0)) +
                                     "; give every row to a member");
  }
  if (state_->alone()) {
    if (rows_out != rows_in) {
      state_->refuse("all_to_all", "this rank alone sends " + std::to_string(rows_in) +
                                       " rows to itself and expects " + std::to_string(rows_out));
    }
    return input.detach().clone();
  }
  const Backend& backend = state_->backend_for("all_to_all", input);
  at::Tensor staged_input = state_->staged(input.detach().contiguous(), backend);
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes[0] = rows_out;
  at::Tensor output = at::empty(sizes, staged_input.options());
  std::vector<std::int64_t> in = input_splits;
  std::vector<std::int64_t> out = output_splits;
  auto work = backend->alltoall_base(output, staged_input, out, in);
  state_->pending(std::move(work), "all_to_all", {output, staged_input}, "", {}, output).wait();
  return output.to(input.device());
}

Pending Group::send(at::Tensor tensor, int peer, int tag) const {
  state_->check_peer("send", peer, tag);
  const Backend& backend = state_->backend_for("send", tensor);
  std::vector<at::Tensor> tensors{state_->staged(tensor.detach().contiguous(), backend)};
  auto work = backend->send(tensors, peer, tag);
  const at::Tensor host = tensors[0];
  return state_->pending(std::move(work), "send", std::move(tensors),
                         ", to rank " +
                             std::to_string(state_->ranks[static_cast<std::size_t>(peer)]) +
                             " with tag " + std::to_string(tag),
                         {}, host);
}

Pending Group::receive(at::Tensor tensor, int peer, int tag) const {
  state_->check_written("receive", tensor);
  state_->check_peer("receive", peer, tag);
  const Backend& backend = state_->backend_for("receive", tensor);
  std::vector<at::Tensor> tensors{state_->staged(tensor.detach(), backend)};
  auto work = backend->recv(tensors, peer, tag);
  const at::Tensor host = tensors[0];
  return state_->pending(std::move(work), "receive", std::move(tensors),
                         ", from rank " +
                             std::to_string(state_->ranks[static_cast<std::size_t>(peer)]) +
                             " with tag " + std::to_string(tag),
                         tensor.detach(), host);
}

void Group::barrier() const {
  if (state_->alone()) return;
  // Not the process group's own: it shares one tensor among all threads of the process.
  const Backend& backend = state_->cpu != nullptr ? state_->cpu : state_->cuda;
  state_->pending(backend->barrier(), "barrier", {}, "", {}, {}).wait();
}

}  // namespace spillway
