#include "comm/mpi/watch.hpp"

#include <algorithm>
#include <cstdio>

namespace spillway::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kAlive = 1;
constexpr char kGoodbye = 0;

/// One sign at a time to the next rank.
class Signs {
 public:
  Signs(MPI_Comm communicator, int next) : communicator_(communicator), next_(next) {}

  /// Nothing happens while the last one is still under way.
  bool send(char sign) {
    int through = 1;
    if (request_ != MPI_REQUEST_NULL) MPI_Test(&request_, &through, MPI_STATUS_IGNORE);
    if (through == 0) return false;
    sign_ = sign;
    MPI_Isend(&sign_, 1, MPI_CHAR, next_, 0, communicator_, &request_);
    return true;
  }

  bool through() {
    int through = 1;
    MPI_Test(&request_, &through, MPI_STATUS_IGNORE);
    return through != 0;
  }

 private:
  MPI_Comm communicator_;
  int next_;
  char sign_ = kAlive;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

/// When the previous rank last showed that it lives.
class Previous {
 public:
  Previous(MPI_Comm communicator, int rank) : communicator_(communicator), rank_(rank) {}

  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] Clock::duration silent() const { return Clock::now() - last_; }
  void forgive() { last_ = Clock::now(); }

  void look() {
    while (!gone_) {
      if (request_ == MPI_REQUEST_NULL) {
        MPI_Irecv(&sign_, 1, MPI_CHAR, rank_, 0, communicator_, &request_);
      }
      int through = 0;
      MPI_Test(&request_, &through, MPI_STATUS_IGNORE);
      if (through == 0) return;
      last_ = Clock::now();
      gone_ = sign_ == kGoodbye;
    }
  }

 private:
  MPI_Comm communicator_;
  int rank_;
  char sign_ = kAlive;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Clock::time_point last_ = Clock::now();
  bool gone_ = false;
};

}  // namespace

Watch::Watch(MPI_Comm communicator, milliseconds silence,
             std::function<void(const std::string& why)> lost)
    : communicator_(communicator),
      silence_(silence),
      lost_(std::move(lost)),
      thread_([this] { run(); }) {}

Watch::~Watch() {
  ending_ = true;
  thread_.join();
}

void Watch::run() {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(communicator_, &rank);
  MPI_Comm_size(communicator_, &size);
  const int before = (rank + size - 1) % size;
  const milliseconds pause = std::clamp(silence_ / 10, milliseconds(10), milliseconds(1000));
  // Ends are quick, whatever the pause between signs.
  constexpr milliseconds kPollInterval{10};

  Signs signs(communicator_, (rank + 1) % size);
  Previous previous(communicator_, before);
  Clock::time_point next_sign = Clock::now();
  Clock::time_point last_look = Clock::now();
  bool said_goodbye = false;
  while (!said_goodbye || !previous.gone() || !signs.through()) {
    previous.look();
    const Clock::time_point now = Clock::now();
    // If this process itself was stopped, perhaps with the whole job, it has missed signs of
    // others.
    if (now - last_look > silence_ / 2) previous.forgive();
    last_look = now;
    if (!previous.gone() && previous.silent() > silence_) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.1f s", static_cast<double>(silence_.count()) / 1e3);
      lost_("rank " + std::to_string(before) + " of " + std::to_string(size) +
            " shows no sign of life for " + seconds +
            ": it was stopped, or its machine or its network is lost");
      return;
    }
    if (ending_ && !said_goodbye) {
      said_goodbye = signs.send(kGoodbye);
    } else if (!ending_ && now >= next_sign) {
      signs.send(kAlive);
      next_sign = now + pause;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace spillway::mpi
