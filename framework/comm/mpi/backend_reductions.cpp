// Reductions: each rank combines its share of the elements in the order of the ranks, and gives the
// result to all. So the bits are the same everywhere, and do not depend on where shares begin.
#include <cstring>
#include <memory>

#include "comm/mpi/backend.hpp"
#include "comm/mpi/reduce.hpp"
#include "comm/mpi/tensor_check.hpp"
#include "spillway/core/error.hpp"

namespace spillway::mpi {
namespace {

/// Up to here every rank combines everything itself: one exchange instead of two.
constexpr std::int64_t kSmall = 8192;

/// Where the others' elements arrive. No tensor, so that sessions do not count it as the model's.
/// The step that reads it holds it.
using Landing = std::shared_ptr<char[]>;

Landing make_landing(std::int64_t bytes) {
  return std::make_shared_for_overwrite<char[]>(static_cast<std::size_t>(bytes));
}

}  // namespace

Backend::OperationRef Backend::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  check_tensor("all_gather", output);
  check_tensor("all_gather", input);
  if (output.nbytes() != input.nbytes() * static_cast<std::size_t>(size_)) {
    throw InvalidArgument("all_gather", "the output must be " + std::to_string(size_) +
                                            " times as large as the input");
  }
  auto operation = collective("all_gather", {output, input});
  const auto bytes = static_cast<std::int64_t>(input.nbytes());
  auto* const to = static_cast<char*>(output.data_ptr());
  // The input may be its own part of the output.
  if (bytes > 0) std::memmove(to + rank_ * bytes, input.data_ptr(), input.nbytes());
  channel_->for_each_other([&](int peer) {
    operation->receive(to + peer * bytes, bytes, peer);
    operation->send(input.data_ptr(), bytes, peer);
  });
  engine_->start(operation);
  return operation;
}

Backend::OperationRef Backend::start_reduce_scatter(const at::Tensor& output,
                                                    const at::Tensor& input,
                                                    c10d::ReduceOp::RedOpType how) {
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  const c10::ScalarType type = input.scalar_type();
  check_reduction("reduce_scatter", type, how);
  if (output.scalar_type() != type || input.numel() != output.numel() * size_) {
    throw InvalidArgument("reduce_scatter", "the input must have " + std::to_string(size_) +
                                                " times the elements of the output");
  }
  const std::int64_t count = output.numel();
  const auto bytes = static_cast<std::int64_t>(output.nbytes());
  auto operation = collective("reduce_scatter", {output, input});
  const Landing arrived = make_landing(size_ * bytes);
  const auto* const mine = static_cast<const char*>(input.data_ptr());
  std::vector<const void*> rows(static_cast<std::size_t>(size_), mine + rank_ * bytes);
  channel_->for_each_other([&](int peer) {
    char* const row = arrived.get() + peer * bytes;
    rows[static_cast<std::size_t>(peer)] = row;
    operation->receive(row, bytes, peer);
    operation->send(mine + peer * bytes, bytes, peer);
  });
  operation->then([=, held = arrived, rows = std::move(rows), out = output.data_ptr()](
                      Operation& /*self*/) { reduce_rows(type, how, rows, out, count); });
  engine_->start(operation);
  return operation;
}

Backend::OperationRef Backend::start_all_reduce(const at::Tensor& tensor,
                                                c10d::ReduceOp::RedOpType how) {
  check_tensor("all_reduce", tensor);
  const c10::ScalarType type = tensor.scalar_type();
  check_reduction("all_reduce", type, how);
  const std::int64_t count = tensor.numel();
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  const bool small = count * element <= kSmall;
  // A share of the elements for each member; of small tensors everyone has all.
  const auto begin_of = [=, size = size_](int member) { return small ? 0 : count * member / size; };
  const auto count_of = [=](int member) {
    return small ? count : begin_of(member + 1) - begin_of(member);
  };

  const std::int64_t here = count_of(rank_);
  auto operation = collective("all_reduce", {tensor});
  const Landing arrived = make_landing(size_ * here * element);
  auto* const data = static_cast<char*>(tensor.data_ptr());
  char* const share = data + begin_of(rank_) * element;
  std::vector<const void*> rows(static_cast<std::size_t>(size_), share);
  channel_->for_each_other([&](int peer) {
    char* const row = arrived.get() + peer * here * element;
    rows[static_cast<std::size_t>(peer)] = row;
    operation->receive(row, here * element, peer);
    operation->send(data + begin_of(peer) * element, count_of(peer) * element, peer);
  });
  operation->then([=, held = arrived, channel = channel_, rows = std::move(rows)](Operation& self) {
    reduce_rows(type, how, rows, share, here);
    if (small) return;
    channel->for_each_other([&](int peer) {
      self.receive(data + begin_of(peer) * element, count_of(peer) * element, peer);
      self.send(share, here * element, peer);
    });
  });
  engine_->start(operation);
  return operation;
}

}  // namespace spillway::mpi
