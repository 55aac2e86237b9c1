/// How a list of layers is split into the parts of a pipeline. Pure functions from numbers and
/// names to bounds.
///
/// Bounds are parts + 1 numbers: 0 first, the number of layers last, each larger than the one
/// before. Part i holds the layers from bounds[i] up to, not including, bounds[i + 1]. No part is
/// empty. With several chunks a stage there are chunks * stages parts (schedule.hpp).
///
/// Errors of all functions: InvalidArgument with what was wanted and found, if there are fewer
/// layers than parts, or less than one part, or as said below.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Parts of equal size. If the layers do not divide, the last parts get one more, as in Paddle: 10
/// layers in 4 parts are 2, 2, 3, 3.
[[nodiscard]] std::vector<int> segment_uniform(int layers, int parts);

/// Parts with equally many layers called `name`. A part ends behind the last of its layers of that
/// name; what comes after the last one of all belongs to the last part.
/// Errors: InvalidArgument also if no layer has that name, with the names there are, or if their
/// number is not a multiple of `parts`.
[[nodiscard]] std::vector<int> segment_by_name(const std::vector<std::string>& names,
                                               std::string_view name, int parts);

/// The split whose heaviest part is as light as possible, exactly; of those that are equal in this,
/// the one with the earliest bounds, the first bound first. Weights may be bytes or nanoseconds.
/// Errors: InvalidArgument also if a weight is negative, or their sum is too large to count.
[[nodiscard]] std::vector<int> segment_by_weight(const std::vector<std::int64_t>& weights,
                                                 int parts);

/// Errors: InvalidArgument with the first number that breaks the rules above.
void check_bounds(const std::vector<int>& bounds, int layers, int parts);

enum class SegmentationMethod { kUniform, kLayerName, kMemory, kTime, kBounds };

/// What a user wrote: "uniform", "layer:Name", "memory", "time", or bounds.
struct Segmentation {
  SegmentationMethod method = SegmentationMethod::kUniform;
  std::string layer;        ///< Of kLayerName.
  std::vector<int> bounds;  ///< Of kBounds.

  bool operator==(const Segmentation&) const = default;
};

/// Reads "uniform", "layer:Block", "memory", "time", "0,4,8,12" or "[0, 4, 8, 12]". Whether bounds
/// fit is seen when the layers are known.
/// Errors: InvalidArgument with the text and what is accepted.
[[nodiscard]] Segmentation parse_segmentation(std::string_view text);

/// What parse_segmentation() reads as the same.
[[nodiscard]] std::string to_string(const Segmentation& segmentation);

/// What the methods look at. Weights are needed only for "memory" and "time".
struct SegmentationLayers {
  std::vector<std::string> names;    ///< One for each layer.
  std::vector<std::int64_t> memory;  ///< Bytes that backward needs of each; empty: not known.
  std::vector<std::int64_t> time;    ///< Nanoseconds, forward and backward; empty: not known.
};

/// The bounds.
/// Errors: InvalidArgument as the function for the method, or if the weights that it needs are not
/// known or not as many as the layers.
[[nodiscard]] std::vector<int> segment(const Segmentation& segmentation,
                                       const SegmentationLayers& layers, int parts);

}  // namespace spillway
