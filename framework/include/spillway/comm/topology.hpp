/// How the ranks of a job are laid out: which of them form a pipeline, which hold copies, and so
/// on. Pure arithmetic; knows neither torch nor MPI.
///
///   Topology topology(8, {.data = 2, .pipeline = 4});
///   int stage = topology.coordinate(rank, Axis::kPipeline);
///   Group stages = world->group("pipeline", topology.partition(Axis::kPipeline));
///
/// The axes are independent: data x pipeline x tensor x expert = all ranks. Ranks along `expert`
/// hold different experts and read different data, so weights that are no expert's are equal along
/// data and expert together: partition({Axis::kData, Axis::kExpert}) sums their gradients. What
/// Megatron calls the data-parallel size is data x expert here.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

enum class Axis { kData, kPipeline, kTensor, kExpert };

[[nodiscard]] std::string_view to_string(Axis axis);

/// From the axis along which neighbours have consecutive ranks to the one with the largest strides.
using AxisOrder = std::array<Axis, 4>;

/// As Megatron's tp-ep-dp-pp: tensor ranks next to each other, where links are fastest; stages,
/// which communicate least, farthest apart.
inline constexpr AxisOrder kMegatronOrder{Axis::kTensor, Axis::kExpert, Axis::kData,
                                          Axis::kPipeline};
/// As Paddle's hybrid topology (data, pipe, model): whole pipelines next to each other.
inline constexpr AxisOrder kPaddleOrder{Axis::kTensor, Axis::kExpert, Axis::kPipeline, Axis::kData};

/// Ranks along each axis. One of them may be 0: as many as are left.
struct TopologySizes {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int expert = 1;
};

/// A rank's position along each axis.
struct Coordinates {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
  int expert = 0;

  [[nodiscard]] int operator[](Axis axis) const;
  bool operator==(const Coordinates&) const = default;
};

class Topology {
 public:
  /// Errors: InvalidArgument, with the product and what would fit, unless the sizes make up
  /// `world_size`; also if `order` has an axis twice.
  Topology(int world_size, TopologySizes sizes, AxisOrder order = kMegatronOrder);

  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  [[nodiscard]] int size(Axis axis) const;

  /// Errors: InvalidArgument if there is no such rank, or no such position.
  [[nodiscard]] Coordinates coordinates(int rank) const;
  [[nodiscard]] int coordinate(int rank, Axis axis) const { return coordinates(rank)[axis]; }
  [[nodiscard]] int rank(const Coordinates& coordinates) const;

  /// The ranks that differ from `rank` along `axes` at most, itself included, in rising order of
  /// their coordinates; of several axes the one that comes first in the topology's order runs
  /// fastest.
  [[nodiscard]] std::vector<int> ranks_along(int rank, Axis axis) const;
  [[nodiscard]] std::vector<int> ranks_along(int rank, const std::vector<Axis>& axes) const;

  /// All ranks, divided into such lists: what World::group() takes. The lists are in the order of
  /// their first ranks.
  [[nodiscard]] std::vector<std::vector<int>> partition(Axis axis) const;
  [[nodiscard]] std::vector<std::vector<int>> partition(const std::vector<Axis>& axes) const;

  /// "data 2 x pipeline 4 x tensor 1 x expert 1".
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] int stride(Axis axis) const;

  int world_size_;
  std::array<int, 4> sizes_;  // By the value of Axis.
  AxisOrder order_;
};

}  // namespace spillway
