/// A random training program as a value: what its model computes and what its steps do. The same
/// seed and features give the same program; it can be printed, and simplified one edit at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "features.hpp"

namespace spillway::testing {

/// The operand that is the input of the block.
inline constexpr int kBlockInput = -1;

/// All values have the shape [rows, width], so any value can stand for any other.
struct Instruction {
  int id = 0;          ///< Of its result.
  std::size_t op = 0;  ///< Of operators().
  int a = kBlockInput;
  int b = kBlockInput;
  std::uint32_t draw = 0;  ///< Decides what the operator leaves open: weights, offsets.
  bool held = false;       ///< The program holds the result until the step ends.
};

/// A layer. Its output is the last value of `main`, plus that of `other` if there is one.
struct Block {
  int number = 0;
  std::vector<Instruction> main;
  std::vector<Instruction> other;
  bool residual = false;
  bool norm = false;
};

enum class Ending {
  kBackward,
  kTwice,          ///< Two backwards through each graph.
  kOnThread,       ///< Backward on another thread.
  kNone,           ///< No backward.
  kAfterStep,      ///< The step is ended before backward.
  kNextStep,       ///< Backward at the beginning of the next step.
  kFailsForward,   ///< An exception in the middle of forward.
  kFailsBackward,  ///< An exception in the middle of backward.
};

enum class PassOrder {
  kInTurn,       ///< Each forward is followed by its backward.
  kForwardFirst  ///< All forwards, then all backwards.
};

/// Of the weights by set_data, with the same content.
enum class Replaced { kNo, kUnregistered, kRegistered };

struct StepEvents {
  std::int64_t rows = 16;
  int micro_batches = 1;
  PassOrder order = PassOrder::kInTurn;
  std::uint32_t skipped = 0;  ///< Bit k: without block k.
  std::uint32_t swapped = 0;  ///< Bit k: block k runs its other branch first.
  Ending ending = Ending::kBackward;
  int fails_at = 0;  ///< The number of the operator that fails, of those that run.
  Replaced replaced_before = Replaced::kNo;
  bool replaced_inside = false;
  bool traced = false;
};

struct RandomProgram {
  std::uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  std::int64_t width = 16;
  bool tied = false;
  std::uint32_t unregistered = 0;  ///< Bit k: the session does not know weight k.
  bool passes = false;             ///< Passes are named by pass().
  bool schedule = false;           ///< Steps announce their order.
  std::vector<Block> blocks;
  std::vector<StepEvents> steps;

  [[nodiscard]] std::string to_string() const;
  /// What it uses.
  [[nodiscard]] Features features() const;
};

[[nodiscard]] RandomProgram random_program(std::uint64_t seed, const Features& features);

/// Programs with one thing less each, the largest edits first.
[[nodiscard]] std::vector<RandomProgram> simpler(const RandomProgram& program);

}  // namespace spillway::testing
