/// Messages between this rank and others that belong together: a send, or one collective.
///
/// Everything is made of messages from one rank to another, also collectives, for three reasons:
/// sums are made in the order of the ranks, whatever MPI would choose for the size at hand; an
/// operation that does not end knows which rank it waits for; and its later messages may start at
/// any time, where collectives of MPI would have to start in the same order on all ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include "comm/mpi/channel.hpp"

namespace spillway::mpi {

/// Threads: made and given its first messages by one thread; after that advance() and missing() by
/// one at a time, finished() and rethrow() by any.
class Operation {
 public:
  using Step = std::function<void(Operation&)>;

  /// `tensors` are kept alive until it is finished.
  Operation(std::shared_ptr<const Channel> channel, std::string name, int tag,
            std::vector<at::Tensor> tensors);

  /// Start a message to, or from, the group rank `peer`. All messages of one operation from one
  /// rank to another arrive in order.
  void send(const void* data, std::int64_t bytes, int peer);
  void receive(void* data, std::int64_t bytes, int peer);
  /// Runs `step` when all messages so far are through; it may start more.
  void then(Step step) { steps_.push_back(std::move(step)); }

  /// Polls messages and goes on. Does not block. Returns whether any completed.
  bool advance() noexcept;

  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }
  /// Throws what made it fail, if anything did. Only when it is finished.
  void rethrow() const;
  [[nodiscard]] bool failed() const noexcept { return error_ != nullptr; }
  [[nodiscard]] std::exception_ptr error() const noexcept { return error_; }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// "group data (ranks 0 2): nothing came from rank 2".
  [[nodiscard]] std::string missing() const;

 private:
  struct Message {
    int peer;
    int bytes;
    bool received;
  };

  bool test_messages();
  void check_received(const Message& message, MPI_Status& status) const;
  void finish(std::exception_ptr error) noexcept;

  std::shared_ptr<const Channel> channel_;
  std::string name_;
  int tag_;
  std::vector<at::Tensor> tensors_;
  std::vector<Step> steps_;
  std::size_t next_step_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // By the same index.
  std::size_t open_ = 0;           // Of them not yet through.
  std::exception_ptr error_;
  std::atomic<bool> finished_ = false;
};

}  // namespace spillway::mpi
