#include "comm/mpi/backend.hpp"

#include <cstring>
#include <utility>

#include "comm/mpi/tensor_check.hpp"
#include "comm/mpi/work.hpp"
#include "comm/mpi_plugin.hpp"
#include "groups/mpi_backend_name.hpp"
#include "spillway/core/error.hpp"

namespace spillway::mpi {
namespace {

class NamedOptions final : public c10d::Backend::Options {
 public:
  NamedOptions() : Options(kMpiBackendName) {}
};

const at::Tensor& only(const char* operation, const Backend::Tensors& tensors) {
  if (tensors.size() == 1) return tensors[0];
  throw InvalidArgument(
      operation, std::to_string(tensors.size()) + " tensors were given; MPI takes one at a time");
}

/// Where the rows for, or from, each member begin and end, in bytes.
std::vector<std::int64_t> row_bounds(const at::Tensor& tensor,
                                     const std::vector<std::int64_t>& splits, int size) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::int64_t row_bytes = rows == 0 ? 0 : bytes_of(tensor) / rows;
  const std::vector<std::int64_t> even(static_cast<std::size_t>(size), rows / size);
  const std::vector<std::int64_t>& counts = splits.empty() ? even : splits;
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t count : counts) bounds.push_back(bounds.back() + count * row_bytes);
  if (bounds.back() != bytes_of(tensor) || counts.size() != static_cast<std::size_t>(size)) {
    throw InvalidArgument("all_to_all", "the splits do not make up the " + std::to_string(rows) +
                                            " rows of the tensor; give every row to a member");
  }
  return bounds;
}

}  // namespace

Backend::Backend(std::shared_ptr<const Channel> channel, std::shared_ptr<Engine> engine)
    : c10d::Backend(channel->rank, channel->size()),
      channel_(std::move(channel)),
      engine_(std::move(engine)) {
  init();
}

const std::string Backend::getBackendName() const { return kMpiBackendName; }  // NOLINT

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<NamedOptions>();
}

Backend::OperationRef Backend::collective(const char* name, Tensors tensors) {
  engine_->require_open(name);
  // Collectives have the odd tags, sends the even ones. That numbers come again after a while does
  // not matter: those operations are long through.
  const auto numbers = static_cast<std::uint64_t>(channel_->largest_tag / 2);
  const auto number = collectives_.fetch_add(1) % numbers;
  return std::make_shared<Operation>(channel_, name, static_cast<int>(2 * number + 1),
                                     std::move(tensors));
}

Backend::WorkRef Backend::work(c10d::OpType type, std::vector<OperationRef> operations,
                               Tensors results) {
  return c10::make_intrusive<Work>(rank_, type, engine_, std::move(operations), std::move(results));
}

Backend::WorkRef Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return work(c10d::OpType::ALLREDUCE,
              {start_all_reduce(only("all_reduce", tensors), options.reduceOp)}, tensors);
}

Backend::WorkRef Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  std::vector<OperationRef> operations;
  for (const at::Tensor& each : tensors) {
    operations.push_back(start_all_reduce(each, options.reduceOp));
  }
  return work(c10d::OpType::ALLREDUCE_COALESCED, std::move(operations), tensors);
}

Backend::WorkRef Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("broadcast", tensors);
  check_tensor("broadcast", tensor);
  const auto operation = collective("broadcast", tensors);
  const auto root = static_cast<int>(options.rootRank);
  if (rank_ == root) {
    channel_->for_each_other(
        [&](int peer) { operation->send(tensor.data_ptr(), bytes_of(tensor), peer); });
  } else {
    operation->receive(tensor.data_ptr(), bytes_of(tensor), root);
  }
  engine_->start(operation);
  return work(c10d::OpType::BROADCAST, {operation}, tensors);
}

Backend::WorkRef Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& /*options*/) {
  const at::Tensor& input = only("all_gather", inputs);
  check_tensor("all_gather", input);
  if (outputs.size() != 1 || outputs[0].size() != static_cast<std::size_t>(size_)) {
    throw InvalidArgument(
        "all_gather", "one output is wanted for each of the " + std::to_string(size_) + " members");
  }
  Tensors held = outputs[0];
  held.push_back(input);
  const auto operation = collective("all_gather", std::move(held));
  for (const at::Tensor& output : outputs[0]) {
    check_tensor("all_gather", output);
    if (bytes_of(output) != bytes_of(input)) {
      throw InvalidArgument("all_gather", "outputs must be as large as the input");
    }
  }
  std::memcpy(outputs[0][static_cast<std::size_t>(rank_)].data_ptr(), input.data_ptr(),
              input.nbytes());
  channel_->for_each_other([&](int peer) {
    operation->receive(outputs[0][static_cast<std::size_t>(peer)].data_ptr(), bytes_of(input),
                       peer);
    operation->send(input.data_ptr(), bytes_of(input), peer);
  });
  engine_->start(operation);
  return work(c10d::OpType::ALLGATHER, {operation}, outputs[0]);
}

Backend::WorkRef Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& /*options*/) {
  return work(c10d::OpType::_ALLGATHER_BASE, {start_all_gather(output, input)}, {output});
}

Backend::WorkRef Backend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& /*options*/) {
  std::vector<OperationRef> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(start_all_gather(outputs.at(i), inputs[i]));
  }
  return work(c10d::OpType::ALLGATHER_COALESCED, std::move(operations), outputs);
}

Backend::WorkRef Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  return work(c10d::OpType::_REDUCE_SCATTER_BASE,
              {start_reduce_scatter(output, input, options.reduceOp)}, {output});
}

Backend::WorkRef Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  std::vector<OperationRef> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(start_reduce_scatter(outputs.at(i), inputs[i], options.reduceOp));
  }
  return work(c10d::OpType::COALESCED, std::move(operations), outputs);
}

Backend::WorkRef Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<std::int64_t>& output_splits,
                                        std::vector<std::int64_t>& input_splits,
                                        const c10d::AllToAllOptions& /*options*/) {
  check_tensor("all_to_all", output);
  check_tensor("all_to_all", input);
  const auto in = row_bounds(input, input_splits, size_);
  const auto out = row_bounds(output, output_splits, size_);
  const auto operation = collective("all_to_all", {output, input});
  auto* const to = static_cast<char*>(output.data_ptr());
  const auto* const from = static_cast<const char*>(input.data_ptr());
  const auto length = [](const std::vector<std::int64_t>& bounds, std::size_t member) {
    return bounds[member + 1] - bounds[member];
  };
  const auto here = static_cast<std::size_t>(rank_);
  if (length(in, here) != length(out, here)) {
    throw InvalidArgument("all_to_all",
                          "this rank sends itself " + std::to_string(length(in, here)) +
                              " bytes and expects " + std::to_string(length(out, here)));
  }
  if (length(in, here) > 0) {
    std::memcpy(to + out[here], from + in[here], static_cast<std::size_t>(length(in, here)));
  }
  channel_->for_each_other([&](int peer) {
    const auto member = static_cast<std::size_t>(peer);
    operation->receive(to + out[member], length(out, member), peer);
    operation->send(from + in[member], length(in, member), peer);
  });
  engine_->start(operation);
  return work(c10d::OpType::ALLTOALL_BASE, {operation}, {output});
}

int Backend::checked_tag(const char* operation, int tag) const {
  if (tag >= 0 && tag <= channel_->largest_tag / 2) return 2 * tag;
  throw InvalidArgument(operation, "the tag is " + std::to_string(tag) + "; this MPI has 0 to " +
                                       std::to_string(channel_->largest_tag / 2));
}

Backend::WorkRef Backend::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  check_tensor("send", tensor);
  engine_->require_open("send");
  const auto operation = std::make_shared<Operation>(
      channel_, "send with tag " + std::to_string(tag), checked_tag("send", tag), tensors);
  operation->send(tensor.data_ptr(), bytes_of(tensor), peer);
  engine_->start(operation);
  return work(c10d::OpType::SEND, {operation}, {});
}

Backend::WorkRef Backend::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only("receive", tensors);
  check_tensor("receive", tensor);
  engine_->require_open("receive");
  const auto operation = std::make_shared<Operation>(
      channel_, "receive with tag " + std::to_string(tag), checked_tag("receive", tag), tensors);
  operation->receive(tensor.data_ptr(), bytes_of(tensor), peer);
  engine_->start(operation);
  return work(c10d::OpType::RECV, {operation}, tensors);
}

Backend::WorkRef Backend::barrier(const c10d::BarrierOptions& /*options*/) {
  const auto operation = collective("barrier", {});
  channel_->for_each_other([&](int peer) {
    operation->receive(nullptr, 0, peer);
    operation->send(nullptr, 0, peer);
  });
  engine_->start(operation);
  return work(c10d::OpType::BARRIER, {operation}, {});
}

}  // namespace spillway::mpi
