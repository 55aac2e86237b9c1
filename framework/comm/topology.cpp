#include "spillway/comm/topology.hpp"

#include <algorithm>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr std::array<Axis, 4> kAxes{Axis::kData, Axis::kPipeline, Axis::kTensor, Axis::kExpert};

std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }

std::string text_of(const std::array<int, 4>& sizes) {
  std::string text;
  for (const Axis axis : kAxes) {
    text += (text.empty() ? "" : " x ") + std::string(to_string(axis)) + ' ' +
            std::to_string(sizes[index(axis)]);
  }
  return text;
}

/// The product of all sizes but that of `left_out`.
long product_without(const std::array<int, 4>& sizes, int left_out) {
  long product = 1;
  for (int axis = 0; axis < 4; ++axis) {
    if (axis != left_out) product *= sizes[static_cast<std::size_t>(axis)];
  }
  return product;
}

[[noreturn]] void refuse(const std::string& detail) { throw InvalidArgument("topology", detail); }

/// Gives the axis of size 0, if there is one, what the others leave.
void fill_in(std::array<int, 4>& sizes, int world_size) {
  int open = -1;
  for (int axis = 0; axis < 4; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    if (sizes[index] < 0) {
      refuse(std::string(to_string(kAxes[index])) + " is " + std::to_string(sizes[index]) +
             "; it must be 1 or more, or 0 for as many as are left");
    }
    if (sizes[index] != 0) continue;
    if (open >= 0) {
      refuse(std::string(to_string(kAxes[static_cast<std::size_t>(open)])) + " and " +
             std::string(to_string(kAxes[index])) + " are both 0; one of them must have a size");
    }
    open = axis;
  }
  if (open < 0) return;
  const auto index = static_cast<std::size_t>(open);
  const long others = product_without(sizes, open);
  if (world_size % others != 0) {
    std::array<int, 4> shown = sizes;
    shown[index] = 1;
    refuse("the other axes take " + text_of(shown) + " = " + std::to_string(others) +
           " ranks, which does not divide the " + std::to_string(world_size) +
           " that are there; start a multiple of " + std::to_string(others) + " ranks");
  }
  sizes[index] = static_cast<int>(world_size / others);
}

/// Which single axis could be changed, and to what, so that the sizes make up `world_size`.
std::string what_would_fit(const std::array<int, 4>& sizes, int world_size) {
  std::string text;
  for (int axis = 0; axis < 4; ++axis) {
    const long others = product_without(sizes, axis);
    if (world_size % others != 0) continue;
    text += (text.empty() ? "" : " or ") +
            std::string(to_string(kAxes[static_cast<std::size_t>(axis)])) + " = " +
            std::to_string(world_size / others);
  }
  return text.empty() ? "" : ", or set " + text;
}

}  // namespace

std::string_view to_string(Axis axis) {
  switch (axis) {
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kTensor:
      return "tensor";
    case Axis::kExpert:
      return "expert";
  }
  return "unknown";
}

int Coordinates::operator[](Axis axis) const {
  return std::array{data, pipeline, tensor, expert}[index(axis)];
}

Topology::Topology(int world_size, TopologySizes sizes, AxisOrder order)
    : world_size_(world_size),
      sizes_{sizes.data, sizes.pipeline, sizes.tensor, sizes.expert},
      order_(order) {
  if (world_size < 1) refuse("there are " + std::to_string(world_size) + " ranks; at least 1");
  for (const Axis axis : kAxes) {
    if (std::count(order.begin(), order.end(), axis) != 1) {
      refuse("the order of the axes has " + std::string(to_string(axis)) + ' ' +
             std::to_string(std::count(order.begin(), order.end(), axis)) +
             " times; name each axis once");
    }
  }
  fill_in(sizes_, world_size);
  const long wanted = product_without(sizes_, -1);
  if (wanted != world_size) {
    refuse(text() + " = " + std::to_string(wanted) + " ranks wanted, " +
           std::to_string(world_size) + (world_size == 1 ? " is" : " are") + " there; start " +
           std::to_string(wanted) + " ranks" + what_would_fit(sizes_, world_size));
  }
}

int Topology::size(Axis axis) const { return sizes_[index(axis)]; }

int Topology::stride(Axis axis) const {
  int stride = 1;
  for (const Axis each : order_) {
    if (each == axis) break;
    stride *= size(each);
  }
  return stride;
}

Coordinates Topology::coordinates(int rank) const {
  if (rank < 0 || rank >= world_size_) {
    refuse("there is no rank " + std::to_string(rank) + "; ranks are 0 to " +
           std::to_string(world_size_ - 1));
  }
  const auto along = [&](Axis axis) { return rank / stride(axis) % size(axis); };
  return {.data = along(Axis::kData),
          .pipeline = along(Axis::kPipeline),
          .tensor = along(Axis::kTensor),
          .expert = along(Axis::kExpert)};
}

int Topology::rank(const Coordinates& coordinates) const {
  int rank = 0;
  for (const Axis axis : kAxes) {
    if (coordinates[axis] < 0 || coordinates[axis] >= size(axis)) {
      refuse("there is no position " + std::to_string(coordinates[axis]) + " along " +
             std::string(to_string(axis)) + ", which has " + std::to_string(size(axis)));
    }
    rank += coordinates[axis] * stride(axis);
  }
  return rank;
}

std::vector<int> Topology::ranks_along(int rank, Axis axis) const {
  return ranks_along(rank, std::vector{axis});
}

std::vector<int> Topology::ranks_along(int rank, const std::vector<Axis>& axes) const {
  const Coordinates here = coordinates(rank);
  std::vector<int> ranks{rank};
  for (const Axis axis : axes) ranks[0] -= here[axis] * stride(axis);
  // Slower axes repeat what is there already, moved by their stride.
  for (const Axis axis : order_) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
    const std::size_t before = ranks.size();
    for (int position = 1; position < size(axis); ++position) {
      for (std::size_t i = 0; i < before; ++i) ranks.push_back(ranks[i] + position * stride(axis));
    }
  }
  return ranks;
}

std::vector<std::vector<int>> Topology::partition(Axis axis) const {
  return partition(std::vector{axis});
}

std::vector<std::vector<int>> Topology::partition(const std::vector<Axis>& axes) const {
  std::vector<std::vector<int>> lists;
  for (int rank = 0; rank < world_size_; ++rank) {
    std::vector<int> ranks = ranks_along(rank, axes);
    if (ranks.front() == rank) lists.push_back(std::move(ranks));
  }
  return lists;
}

std::string Topology::text() const { return text_of(sizes_); }

}  // namespace spillway
