/// Ranks in a ring, each showing the next that it lives.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <mpi.h>

namespace spillway::mpi {

/// A thread that sends a sign of life to the next rank and expects one of the previous rank. A
/// process that was stopped, or whose machine was lost, sends none.
class Watch {
 public:
  /// `lost` is called, on that thread, when the previous rank was silent for `silence`.
  /// `communicator` has all ranks and is used here only; it is freed by the caller after the
  /// end of this.
  Watch(MPI_Comm communicator, std::chrono::milliseconds silence,
        std::function<void(const std::string& why)> lost);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// Waits for the previous rank to end its watch too: every rank must be about to.
  ~Watch();

 private:
  void run();

  MPI_Comm communicator_;
  std::chrono::milliseconds silence_;
  std::function<void(const std::string& why)> lost_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace spillway::mpi
