/// What is measured of one plan on one rank.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lone_stage.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/torch/session.hpp"

namespace spillway::bench {

/// What an allocator may hold beyond the peak, in percent of all that it holds.
inline constexpr double kMostUnused = 3;

struct Outcome {
  std::vector<double> base;  ///< In turns with
  std::vector<double> milliseconds;
  std::vector<double> ratios;
  Bytes unaided;
  Bytes peak;
  SessionReport report;
  Bytes predicted;  ///< The peak by the simulator,
  Bytes least;      ///< if what leaves were gone at once,
  Bytes kept;       ///< and if nothing left. 0 where the session recorded no times.
  /// Of the allocator, after steps with the session alone: what it holds that no step ever used, in
  /// percent. Nothing on the CPU.
  std::optional<double> unused;
  std::optional<double> unused_without;  ///< The same after steps without it.
  /// What steps with the session take if the allocator may hold no more than kMostUnused beyond
  /// their peak, and so gives back fragments; empty if it cannot, or on the CPU.
  std::vector<double> tight_milliseconds;
  std::optional<int> different;  ///< Nothing where values are made up.
};

/// Lets a session with `given` settle, then takes turns without and with it. `shards`: made up, or
/// null. If `folder` is not empty the profile and the plan go there, as `id`-profile.json and
/// `id`-plan.json.
[[nodiscard]] Outcome measure(LoneStage& stage, SessionOptions given,
                              std::shared_ptr<ShardGroup> shards, int repeats,
                              const std::filesystem::path& folder, const std::string& id);

}  // namespace spillway::bench
