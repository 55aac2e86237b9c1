#include "spillway/groups/group.hpp"

#include <utility>

#include <ATen/ops/empty.h>

#include "groups/group_state.hpp"

namespace spillway {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

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
  auto work = state_->start(backend, [&] { return backend->allreduce(tensors, options); });
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
  auto work = state_->start(backend, [&] { return backend->broadcast(tensors, options); });
  const at::Tensor host = tensors[0];
  return state_->pending(std::move(work), "broadcast", std::move(tensors),
                         ", from " + state_->member_text(root), tensor.detach(), host);
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
  state_->check_parts("all_gather", "output", output, tensor);
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
  auto work =
      state_->start(backend, [&] { return backend->_allgather_base(flat_host, flat_input); });
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
  state_->check_parts("reduce_scatter", "input", input, output);
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
  auto work = state_->start(
      backend, [&] { return backend->_reduce_scatter_base(flat_host, flat_input, options); });
  return state_->pending(std::move(work), "reduce_scatter", {host, staged_input}, "",
                         output.detach(), host);
}

at::Tensor Group::all_to_all(const at::Tensor& input, const std::vector<std::int64_t>& input_splits,
                             const std::vector<std::int64_t>& output_splits) const {
  const std::int64_t rows_in = state_->checked_rows(input_splits, "input");
  const std::int64_t rows_out = state_->checked_rows(output_splits, "output");
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
  auto work =
      state_->start(backend, [&] { return backend->alltoall_base(output, staged_input, out, in); });
  state_->pending(std::move(work), "all_to_all", {output, staged_input}, "", {}, output).wait();
  return output.to(input.device());
}

Pending Group::send(const at::Tensor& tensor, int peer, int tag) const {
  state_->check_peer("send", peer, tag);
  const Backend& backend = state_->backend_for("send", tensor);
  std::vector<at::Tensor> tensors{state_->staged(tensor.detach().contiguous(), backend)};
  auto work = state_->start(backend, [&] { return backend->send(tensors, peer, tag); });
  const at::Tensor host = tensors[0];
  return state_->pending(std::move(work), "send", std::move(tensors),
                         ", to " + state_->member_text(peer) + " with tag " + std::to_string(tag),
                         {}, host);
}

Pending Group::receive(const at::Tensor& tensor, int peer, int tag) const {
  state_->check_written("receive", tensor);
  state_->check_peer("receive", peer, tag);
  const Backend& backend = state_->backend_for("receive", tensor);
  std::vector<at::Tensor> tensors{state_->staged(tensor.detach(), backend)};
  auto work = state_->start(backend, [&] { return backend->recv(tensors, peer, tag); });
  const at::Tensor host = tensors[0];
  return state_->pending(std::move(work), "receive", std::move(tensors),
                         ", from " + state_->member_text(peer) + " with tag " + std::to_string(tag),
                         tensor.detach(), host);
}

void Group::barrier() const {
  if (state_->alone()) return;
  // Not the process group's own: it shares one tensor among all threads of the process.
  const Backend& backend = state_->cpu != nullptr ? state_->cpu : state_->cuda;
  auto work = state_->start(backend, [&] { return backend->barrier(); });
  state_->pending(std::move(work), "barrier", {}, "", {}, {}).wait();
}

}  // namespace spillway
