/// Consecutive elementwise operators as one kernel; internal.
///
/// Each operator computes in float and rounds its result to its type, as it does alone:
/// intermediate values in the kernel have the bits that they have in memory. So results are those
/// of the single operators, as long as the compiler's functions (exp) are those that torch was
/// built with; a session verifies it first, as any replay.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace spillway {

struct ChainProgram {
  /// Which element of an input belongs to element i of the results, whose rows are `inner` long.
  enum class Access {
    kFull,    ///< i
    kRow,     ///< i / inner
    kColumn,  ///< i % inner
  };
  enum class Operation { kAdd, kSub, kMul, kNegate, kSquare, kSilu, kCast };

  struct Input {
    at::ScalarType dtype = at::kFloat;
    Access access = Access::kFull;

    bool operator==(const Input&) const = default;
  };
  /// Operands: inputs by their number, then nodes by theirs; -1 for none.
  struct Node {
    Operation operation = Operation::kMul;
    std::array<int, 2> operands = {-1, -1};
    at::ScalarType dtype = at::kFloat;
    bool stored = false;  ///< Written to memory: an output, in the order of the nodes.

    bool operator==(const Node&) const = default;
  };

  std::vector<Input> inputs;
  std::vector<Node> nodes;

  bool operator==(const ChainProgram&) const = default;

  /// How many elements a thread takes at once; numbers of elements and of those in a row are
  /// multiples of it, and memory is aligned to as many bytes as kAlignment.
  static constexpr std::int64_t kWidth = 8;
  static constexpr std::size_t kAlignment = 16;

  /// float, bfloat16 and half.
  [[nodiscard]] static bool supports(at::ScalarType dtype);

  /// CUDA C++ of the kernel `chain(vectors, row, inputs..., outputs...)`: `vectors` is the number
  /// of elements, and `row` of those in a row, divided by kWidth.
  [[nodiscard]] std::string source() const;
};

}  // namespace spillway
