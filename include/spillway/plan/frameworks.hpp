/// The settings of InternEvo, Megatron-LM and Paddle, as they are written there. docs/rules.md says
/// what each setting means and which rules it becomes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/source_location.hpp"

namespace spillway {

/// Counts are per chunk: the first `offloaded_layers` are offloaded, those up to checkpoint *
/// layers recomputed, the rest kept.
struct InternEvoSettings {
  bool cpu_offloading = false;
  int offloaded_layers = 0;
  double checkpoint = 0;  ///< true is 1.
  bool selective_checkpoint = false;
  bool selective_checkpoint_offload = false;
  int num_chunks = 1;
  SourceLocation location;

  bool operator==(const InternEvoSettings&) const = default;
};

enum class RecomputeGranularity { kNone, kSelective, kFull };
enum class RecomputeMethod { kUniform, kBlock };

struct MegatronSettings {
  bool fine_grained_activation_offloading = false;
  std::vector<std::string> offload_modules;
  std::optional<std::uint64_t> min_offloaded_tensor_size;  ///< Elements.
  std::optional<Bytes> min_offloaded_bytes;
  double activation_offload_fraction = 1;
  Bytes delta_offload_bytes_across_pp_ranks;
  std::optional<int> max_inflight_offloads;
  bool cpu_offloading = false;
  int cpu_offloading_num_layers = 0;
  RecomputeGranularity recompute_granularity = RecomputeGranularity::kNone;
  RecomputeMethod recompute_method = RecomputeMethod::kUniform;
  int recompute_num_layers = 0;
  std::vector<std::string> recompute_modules;
  bool distribute_saved_activations = false;
  SourceLocation location;

  bool operator==(const MegatronSettings&) const = default;
};

struct PaddleSettings {
  int recompute_interval = 0;  ///< 0: nothing is recomputed.
  bool recompute_offload = false;
  bool recompute_partition = false;
  SourceLocation location;

  bool operator==(const PaddleSettings&) const = default;
};

using FrameworkSettings = std::variant<InternEvoSettings, MegatronSettings, PaddleSettings>;

}  // namespace spillway
