/// The measurements of one plan on one rank.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "single_stage.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/torch/session.hpp"

namespace spillway::bench {

/// Limit of what the allocator holds beyond the peak, in percent of all that it holds.
inline constexpr double kMaxUnused = 3;

struct Outcome {
  std::vector<double> base;          ///< Steps without a session, in ms.
  std::vector<double> milliseconds;  ///< Steps with it, in turns with those.
  std::vector<double> ratios;        ///< milliseconds / base.
  Bytes baseline_peak;               ///< Without a session.
  Bytes peak;
  SessionReport report;
  /// Peaks of the simulator: of the plan, if offloaded buffers were released at once, and with
  /// everything kept. 0 if the session measured no times.
  Bytes predicted, least, kept;
  /// Share of the allocator's memory that no step used, in percent, after steps with the session
  /// alone. Empty on the CPU.
  std::optional<double> unused;
  std::optional<double> unused_without;  ///< The same after steps without the session.
  /// Step times while the allocator is limited to kMaxUnused beyond their peak, so that it returns
  /// fragments to the device. Empty if such steps run out of memory, and on the CPU.
  std::vector<double> tight_milliseconds;
  std::optional<int> different;  ///< Gradients that differ in a bit. Empty with emulated shards.
};

/// Runs a session with `given` until its plan settles, then times steps without and with it in
/// turns. `shards`: emulated ranks, or null. Unless `folder` is empty, saves the profile and the
/// plan there as `id`-profile.json and `id`-plan.json.
[[nodiscard]] Outcome measure(SingleStage& stage, SessionOptions given,
                              std::shared_ptr<ShardGroup> shards, int repeats,
                              const std::filesystem::path& folder, const std::string& id);

}  // namespace spillway::bench
