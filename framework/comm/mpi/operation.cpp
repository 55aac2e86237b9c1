#include "comm/mpi/operation.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "comm/mpi/check.hpp"
#include "spillway/groups/error.hpp"

namespace spillway::mpi {
namespace {

std::string ranks_text(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const int rank : ranks) text += ' ' + std::to_string(rank);
  return text;
}

/// Calls `each` with the offsets and lengths of the pieces of a message. An empty one has one
/// piece.
template <typename Each>
void for_each_piece(std::int64_t bytes, int largest, const Each& each) {
  std::int64_t offset = 0;
  do {
    const auto length = static_cast<int>(std::min<std::int64_t>(bytes - offset, largest));
    each(offset, length);
    offset += length;
  } while (offset < bytes);
}

}  // namespace

std::string Channel::text() const {
  std::string text = "group " + name + " (ranks";
  for (const int member : ranks) text += ' ' + std::to_string(member);
  return text + ')';
}

Operation::Operation(std::shared_ptr<const Channel> channel, std::string name, int tag,
                     std::vector<at::Tensor> tensors)
    : channel_(std::move(channel)),
      name_(std::move(name)),
      tag_(tag),
      tensors_(std::move(tensors)) {}

void Operation::send(const void* data, std::int64_t bytes, int peer) {
  for_each_piece(bytes, channel_->largest_message, [&](std::int64_t offset, int length) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(static_cast<const char*>(data) + offset, length, MPI_BYTE, peer, tag_,
                    channel_->communicator, &request),
          "MPI_Isend");
    requests_.push_back(request);
    messages_.push_back({peer, length, false});
    ++open_;
  });
}

void Operation::receive(void* data, std::int64_t bytes, int peer) {
  for_each_piece(bytes, channel_->largest_message, [&](std::int64_t offset, int length) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(static_cast<char*>(data) + offset, length, MPI_BYTE, peer, tag_,
                    channel_->communicator, &request),
          "MPI_Irecv");
    requests_.push_back(request);
    messages_.push_back({peer, length, true});
    ++open_;
  });
}

bool Operation::advance() noexcept {
  bool moved = false;
  try {
    while (!finished()) {
      if (open_ > 0) {
        moved |= test_messages();
        if (open_ > 0) return moved;
      }
      requests_.clear();
      messages_.clear();
      moved = true;
      if (next_step_ == steps_.size()) {
        finish(nullptr);
      } else {
        const Step step = std::move(steps_[next_step_++]);
        step(*this);
      }
    }
  } catch (...) {
    finish(std::current_exception());
    return true;
  }
  return moved;
}

bool Operation::test_messages() {
  const auto count = static_cast<int>(requests_.size());
  std::vector<int> indices(requests_.size());
  std::vector<MPI_Status> statuses(requests_.size());
  int through = 0;
  const int code = MPI_Testsome(count, requests_.data(), &through, indices.data(), statuses.data());
  if (code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  if (through == MPI_UNDEFINED) through = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(through); ++i) {
    const Message& message = messages_[static_cast<std::size_t>(indices[i])];
    --open_;
    if (code == MPI_ERR_IN_STATUS && statuses[i].MPI_ERROR == MPI_ERR_TRUNCATE) {
      throw CommunicationError(
          name_, channel_->text() + ": more than " + std::to_string(message.bytes) +
                     " bytes came from rank " +
                     std::to_string(channel_->ranks[static_cast<std::size_t>(message.peer)]) +
                     "; all members must pass equal types and shapes in the same order");
    }
    if (code == MPI_ERR_IN_STATUS) check(statuses[i].MPI_ERROR, name_.c_str());
    if (message.received) check_received(message, statuses[i]);
  }
  return through > 0;
}

void Operation::check_received(const Message& message, MPI_Status& status) const {
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  if (bytes == message.bytes) return;
  throw CommunicationError(
      name_, channel_->text() + ": " + std::to_string(bytes) + " bytes came from rank " +
                 std::to_string(channel_->ranks[static_cast<std::size_t>(message.peer)]) + ", " +
                 std::to_string(message.bytes) +
                 " were expected; all members must pass equal types and shapes in the same order");
}

void Operation::finish(std::exception_ptr error) noexcept {
  // A failed one may still have messages under way into its tensors: its owner keeps them alive.
  if (error == nullptr) {
    tensors_.clear();
    steps_.clear();
  }
  error_ = std::move(error);
  finished_.store(true, std::memory_order_release);
}

void Operation::rethrow() const {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

std::string Operation::missing() const {
  std::set<int> silent;
  std::set<int> deaf;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    const Message& message = messages_[i];
    (message.received ? silent : deaf)
        .insert(channel_->ranks[static_cast<std::size_t>(message.peer)]);
  }
  // A rank that sent nothing is reported first; whether it received does not matter then.
  if (!silent.empty()) return channel_->text() + ": nothing came from " + ranks_text(silent);
  return channel_->text() + ": " + ranks_text(deaf) + " did not receive";
}

}  // namespace spillway::mpi
