/// An action for every buffer of every chunk, and the limits under which a session executes it. A
/// value: made by rules or by the planner, saved, compared, printed (explain.hpp), executed by a
/// session. docs/profile-and-plan.md describes its JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/engine/residency.hpp"
#include "spillway/plan/action.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway {

inline constexpr std::string_view kPlanSchema = "spillway.plan/6";

inline constexpr Bytes kDefaultRecomputeCache{1ULL << 30U};

/// Limits that are not set are chosen by the session that executes the plan.
struct Limits {
  std::optional<Bytes> host;             ///< Host memory for offloaded buffers.
  std::optional<Bytes> offload_window;   ///< Copied out but not yet released on the device.
  std::optional<Bytes> prefetch_window;  ///< Reloaded but not yet used by backward.
  std::optional<Bytes> min_size;         ///< Smaller buffers are kept.
  /// Where no windows are given: the share of the step time that waits for copies may add in
  /// exchange for less memory. See set_windows().
  std::optional<double> slowdown;
  /// Intermediate results that recomputation keeps for reuse. Sessions and the simulator keep
  /// kDefaultRecomputeCache where it is not set.
  std::optional<Bytes> recompute_cache;

  bool operator==(const Limits&) const = default;
};

struct Decision {
  int buffer = 0;  ///< Its id in the profile; decisions are in that order.
  Position position;
  Bytes bytes;  ///< As recorded; later steps may differ.
  Action action;
  /// What to do if the action turns out to be impossible for this buffer; never kRecompute.
  ActionKind fallback = ActionKind::kKeep;
  /// `rule 2 (memory.toml:14)`, `nothing matched: keep`, `fixed: parameter`.
  std::string reason;
  FixedReason fixed = FixedReason::kNone;  ///< As in the profile.

  bool operator==(const Decision&) const = default;
};

/// One operator call of the forward pass that replays repeat, or that makes an anchor.
struct RecordedOperator {
  int call = 0;      ///< Its number among the chunk's operator calls.
  std::string name;  ///< To check that it is the same one.

  bool operator==(const RecordedOperator&) const = default;
};

/// A value that autograd does not save, kept because replays start from it: what enters a
/// recomputed layer, or what takes longer to recompute than to keep.
struct Anchor {
  int call = 0;    ///< The call that makes it.
  int output = 0;  ///< Its index in that call's `makes`.
  std::string name;
  std::string scope;
  Bytes bytes;
  Action action;  ///< Keep or offload.
  std::string reason;
  int saves = 0;  ///< Of the call, as in the profile.
  int ordinal = 0;

  bool operator==(const Anchor&) const = default;
};

/// The properties of a saved tensor that are the same in every step.
struct SiteKind {
  std::string dtype;
  int dimensions = 0;

  bool operator==(const SiteKind&) const = default;
};

/// The saved tensors of a pass in the order of their saves, by which a session finds the buffers of
/// a plan: by signature, whatever was saved before. Stored in columns, because there are thousands
/// of them, of a few kinds.
struct SiteTable {
  std::vector<SiteKind> kinds;
  std::vector<int> kind;    ///< By site: its index in `kinds`.
  std::vector<int> buffer;  ///< By site: the buffer it is a window on.
  /// By site: SiteProfile::signature. Empty: a plan of the last schema; a session that executes it
  /// finds them in its first step.
  std::vector<std::uint64_t> signature = {};

  bool operator==(const SiteTable&) const = default;
};

[[nodiscard]] SiteTable sites_of(const ChunkProfile& chunk);

struct ChunkPlan {
  int chunk = 0;
  std::vector<Decision> decisions;  ///< One for every buffer of the profile's chunk.
  SiteTable sites;
  std::vector<Anchor> anchors;
  int calls_before_first_save = 0;          ///< As in the profile.
  std::vector<RecordedOperator> operators;  ///< In order, each once; empty: nothing is recomputed.
  /// Buffers in the order backward asks for them, as in the profile; before each one that is
  /// recomputed stands what its replay reads. Anchors count on from the buffers' ids.
  std::vector<int> need_order;
  /// When they are released and reloaded. Empty: the windows of `limits` apply.
  ChunkResidency residency;

  bool operator==(const ChunkPlan&) const = default;
};

struct Plan {
  std::string structure;  ///< structure_digest() of the profile it was made for.
  Limits limits;
  /// Bytes of managed buffers and anchors, of all passes together, for which the budget has room at
  /// every moment of the step. A pass that saves more than profiled keeps to it, less what it has
  /// grown by: more is released than the lists say, reloads wait, and what the planner keeps is
  /// offloaded. One without a list keeps to it, too.
  std::optional<Bytes> cap;
  /// The planner's budget: bytes of a step above what is allocated before it.
  std::optional<Bytes> budget;
  std::optional<std::int64_t> predicted_step_ns;
  std::optional<Bytes> predicted_peak;        ///< As `budget` counts.
  std::optional<std::int64_t> base_step_ns;   ///< Predicted, if everything were kept.
  std::optional<std::int64_t> bound_step_ns;  ///< No plan of this kind can be faster.
  /// Replays may repeat collectives: then every rank replays them in the same order.
  bool recompute_collectives = false;
  std::vector<std::string> notes;  ///< For the reader of the plan, one sentence each.
  std::vector<ChunkPlan> chunks;

  bool operator==(const Plan&) const = default;
};

/// Whether the plan was made for the structure of `profile`: the same digest, chunks, buffers and
/// sites. (A plan may come from a file, so its digest alone is not trusted.) Signatures may differ:
/// another order of registered parameters gives other ones.
[[nodiscard]] bool made_for(const Plan& plan, const Profile& profile);

/// The plan with the signatures of `profile`. Precondition: made_for().
[[nodiscard]] Plan with_signatures_of(const Profile& profile, Plan plan);

/// Lines a person can read; plan_from_json() gives an equal value.
[[nodiscard]] std::string to_json(const Plan& plan);

/// Errors: ConfigError as for profile_from_json().
[[nodiscard]] Plan plan_from_json(std::string_view text, std::string_view file_name);

/// Errors: IoError if the file cannot be read, else as plan_from_json().
[[nodiscard]] Plan load_plan(const std::filesystem::path& path);

/// Readers of `path` see the old file or the whole new one, never a part.
/// Errors: IoError; the old file is as it was then.
void save_plan(const Plan& plan, const std::filesystem::path& path);

}  // namespace spillway
