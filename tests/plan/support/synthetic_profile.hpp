/// Profiles as a recorder would make them: whole transformers, by the names of several model
/// families, and random ones.
#pragma once

#include <cstdint>
#include <random>

#include "spillway/plan/profile.hpp"

namespace spillway::testing {

inline constexpr const char* kFlash = "aten::_scaled_dot_product_flash_attention";

/// Whose names for the parts of a layer.
enum class Naming { kOwn, kLlama, kGpt2, kOwnExperts, kMixtral, kQwenExperts };

struct ModelSize {
  Naming naming = Naming::kOwn;
  int layers = 16;
  std::int64_t tokens = 8192;
  std::int64_t hidden = 4096;
  std::int64_t key_value = 1024;  ///< Width of keys and of values.
  std::int64_t ffn = 14336;
  int experts = 2;
  /// Norms that copy to fp32 and rotary positions, as Hugging Face's models have them: the residual
  /// stream is not saved. Without: fused norms, which save it.
  bool casting_norms = false;
  bool dropout = false;  ///< After attention and after the MLP.
  bool copies = false;   ///< Attention's output is copied to another layout before its projection.
};

/// One chunk, bf16, with its graph of values. Small buffers and weights are fixed, as a recorder
/// marks them; everything else has a usable recipe.
[[nodiscard]] Profile transformer_profile(const ModelSize& size);

/// `chunks` chunks of `layers` layers each, numbered through, as one rank of an interleaved
/// pipeline.
[[nodiscard]] Profile chunked_profile(const ModelSize& size, int chunks);

/// Valid, otherwise without sense: any text, any number.
[[nodiscard]] Profile random_profile(std::mt19937_64& random);

/// Buffers without layers or names, `sizes` in the order of their making.
[[nodiscard]] Profile baseline_profile(const std::vector<std::uint64_t>& sizes);

}  // namespace spillway::testing
