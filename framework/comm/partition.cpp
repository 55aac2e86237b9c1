#include "comm/partition.hpp"

#include <algorithm>

#include "spillway/core/error.hpp"

namespace spillway {

const std::vector<int>& list_of(int rank, int size, const std::string& name,
                                const std::vector<std::vector<int>>& partition) {
  const auto refuse = [&](const std::string& detail) {
    throw InvalidArgument("group " + name, detail + "; each of the " + std::to_string(size) +
                                               " ranks belongs into exactly one list");
  };
  std::vector<int> times(static_cast<std::size_t>(size), 0);
  const std::vector<int>* found = nullptr;
  for (const std::vector<int>& list : partition) {
    for (const int member : list) {
      if (member < 0 || member >= size) refuse("there is no rank " + std::to_string(member));
      ++times[static_cast<std::size_t>(member)];
      if (member == rank) found = &list;
    }
  }
  for (int member = 0; member < size; ++member) {
    const int count = times[static_cast<std::size_t>(member)];
    if (count == 0) refuse("rank " + std::to_string(member) + " is in no list");
    if (count > 1) refuse("rank " + std::to_string(member) + " is in more than one list");
  }
  return *found;
}

int position_of(int rank, const std::vector<int>& list) {
  return static_cast<int>(std::find(list.begin(), list.end(), rank) - list.begin());
}

}  // namespace spillway
