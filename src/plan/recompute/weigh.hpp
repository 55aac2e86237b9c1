/// Whether to recompute or to keep a value that autograd did not save: what follows from profile
/// and rules alone, found once for many plans.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "plan/policy/match.hpp"
#include "plan/recompute/obstacles.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// What an unsaved value's own properties suggest, before its readers are known.
enum class Preference {
  kReplay,      ///< A recompute rule covers it.
  kNamed,       ///< A keep or offload rule names what makes it.
  kSlow,        ///< Recomputing it takes longer than reloading it.
  kImpossible,  ///< It cannot be recomputed.
  kByBytes,     ///< The smaller of its bytes and its inputs' bytes decides.
};

struct Weighed {
  Preference preference = Preference::kByBytes;
  std::size_t rule = 0;      ///< Of kNamed.
  std::uint64_t inputs = 0;  ///< Bytes of anchors that its recomputation needs; saturates.
  std::uint64_t cost = 0;    ///< The same for the cheaper of recomputing and keeping it.
};

[[nodiscard]] constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return a > most - b ? most : a + b;
}

/// Whether an operator of the pass made the value and autograd did not save it.
[[nodiscard]] inline bool is_unsaved(const ValueProfile& value) {
  return value.buffer < 0 && value.call >= 0;
}

/// Weighs every unsaved value of a chunk once, inputs before outputs. Keeps references; `rules`
/// must be translated.
class Weights {
 public:
  Weights(const ChunkProfile& chunk, const Profile& profile, const Rules& rules,
          const Matcher& matcher);

  [[nodiscard]] const ChunkProfile& chunk() const { return chunk_; }
  [[nodiscard]] const Profile& profile() const { return profile_; }
  [[nodiscard]] const Rules& rules() const { return rules_; }
  [[nodiscard]] const Matcher& matcher() const { return matcher_; }
  [[nodiscard]] const Obstacles& obstacles() const { return obstacles_; }

  /// Of an unsaved value.
  [[nodiscard]] const Weighed& of(int value) const {
    return weighed_[static_cast<std::size_t>(value)];
  }

  /// Whether a value enters the layer, or the group of layers, of a call that reads it from another
  /// one. An operator must have made it.
  [[nodiscard]] bool crosses(int value, int reader) const;

 private:
  void weigh(int call, bool possible);
  [[nodiscard]] Weighed preference_for(const ValueProfile& value) const;
  [[nodiscard]] bool is_slow(const ValueProfile& value) const;
  [[nodiscard]] std::uint64_t cost_of_inputs(int call) const;

  const ChunkProfile& chunk_;
  const Profile& profile_;
  const Rules& rules_;
  const Matcher& matcher_;
  Obstacles obstacles_;
  std::vector<int> regions_;      // By call: the layers that are recomputed as one.
  std::vector<Weighed> weighed_;  // By value.
};

}  // namespace spillway
