/// A communicator with its name and ranks.
#pragma once

#include <string>
#include <vector>

#include <mpi.h>

namespace spillway::mpi {

struct Channel {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::string name;
  std::vector<int> ranks;  ///< World ranks of its members.
  int rank = 0;            ///< This process among them.
  int largest_message = 0;
  int largest_tag = 0;

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// "group data (ranks 0 2)".
  [[nodiscard]] std::string text() const;

  /// Calls `each` with every group rank but this one, beginning with the next, so that not all
  /// ranks send to the same one first.
  template <typename Each>
  void for_each_other(const Each& each) const {
    for (int distance = 1; distance < size(); ++distance) each((rank + distance) % size());
  }
};

}  // namespace spillway::mpi
