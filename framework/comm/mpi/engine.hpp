/// Completes the operations of all groups of this rank.
///
/// MPI makes progress only while it is called. So a thread that waits for one operation advances
/// all of them, and a background thread does so from time to time while none waits: a send whose
/// Pending was dropped arrives, and an all-reduce runs beside the computation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/operation.hpp"

namespace spillway::mpi {

/// Threads: any.
class Engine {
 public:
  /// `timeout`: of waits that name none. Zero: no limit.
  explicit Engine(std::chrono::milliseconds timeout);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  /// Keeps the operation alive until it is finished. A failed one is kept for ever, because MPI may
  /// still write into its tensors.
  /// Before close() only: ask require_open() before the first message.
  void start(const std::shared_ptr<Operation>& operation);

  /// Errors: CommunicationError, naming the operation, after close().
  void require_open(const std::string& operation);

  /// Tests and yields, and sleeps for moments after a while: where ranks are more than cores, one
  /// that waits busily keeps the others from what it waits for.
  /// Errors: CommunicationError after `limit`, or the timeout if that is zero; what made it fail.
  void wait(const Operation& operation, std::chrono::milliseconds limit);

  /// Advances all operations unless another thread is at it. Whether any moved.
  bool advance();

  /// Waits for all operations, also those whose Pending was dropped.
  /// Errors: as wait(), for the first of them.
  void drain();

  /// From here on nothing can be started.
  void close();

 private:
  void run();

  std::chrono::milliseconds timeout_;
  std::mutex advancing_;  // Taken before mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Operation>> active_;
  std::vector<std::shared_ptr<Operation>> failed_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace spillway::mpi
