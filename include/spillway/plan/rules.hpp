/// The explicit policy language: a list of rules, of which the first that matches a buffer decides.
/// TOML, described in docs/rules.md. The settings of other frameworks (frameworks.hpp) may stand in
/// the same file and become rules by translate().
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"
#include "spillway/core/source_location.hpp"
#include "spillway/plan/action.hpp"
#include "spillway/plan/frameworks.hpp"
#include "spillway/plan/layer_set.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway {

/// Conditions, all of which must hold, and the action. A list of patterns holds if one of them
/// matches; an empty list always holds.
///
/// Patterns: `*` is any text, dots included, `?` one character. A pattern for scopes also matches
/// everything inside the scope it names; with a dot at its end, only that scope itself.
struct Rule {
  std::string name;  ///< For people; may be empty.

  std::vector<std::string> scope;     ///< Where it was saved.
  std::vector<std::string> saved_by;  ///< The operator that saved it; one save must match both.
  std::vector<std::string> module;    ///< Module words: a save inside one of these modules.
  std::vector<std::string> producer;  ///< The operator that made it.
  std::vector<std::string> made_in;   ///< The scope in which that operator ran.
  std::vector<std::string> made_in_module;
  std::optional<LayerSet> layers;  ///< Of the first save.
  /// Only what enters a group of this many layers from outside; groups are counted from the start
  /// of each range of `layers`. 1: each layer's inputs. Also says which layers are recomputed as
  /// one: replays cross no border between groups.
  std::optional<int> group_inputs;
  std::optional<Bytes> min_size;
  std::optional<Bytes> max_size;
  std::optional<std::uint64_t> min_elements;  ///< Of the largest tensor saved of it.

  Action action;
  ActionKind fallback = ActionKind::kKeep;  ///< Not kRecompute.
  /// The first `skip` matching bytes of a chunk, in order of production, and those beyond
  /// `fraction` are decided by later rules.
  Bytes skip;
  double fraction = 1;

  SourceLocation location;

  bool operator==(const Rule&) const = default;
};

struct Rules {
  std::vector<Rule> rules;
  Limits limits;
  /// Instead of limits.offload_window: this many times the bytes of one layer's offloaded modules.
  /// 0: every offload is waited for.
  std::optional<int> offload_window_modules;
  /// Outputs of collectives may be recomputed; all ranks must have the same rules then.
  bool recompute_collectives = false;
  /// The planner may shard what is equal on all ranks of the session's shard group.
  bool plan_shards = false;
  std::optional<FrameworkSettings> settings;  ///< Not translated yet; they come after `rules`.
  std::vector<std::string> notes;             ///< For the reader of the rules.

  bool operator==(const Rules&) const = default;
};

/// Errors: ConfigError "[rules] file:line:column: key ...", with the nearest valid word, for text
/// that is not TOML, unknown keys, wrong types, impossible values, and settings of frameworks that
/// contradict each other.
[[nodiscard]] Rules parse_rules(std::string_view text, std::string_view file_name);

/// Errors: IoError if the file cannot be read, else as parse_rules().
[[nodiscard]] Rules load_rules(const std::filesystem::path& path);

/// Whether plans by these rules, or under them, may shard.
[[nodiscard]] bool may_shard(const Rules& rules);

/// What settings of frameworks are translated for.
struct ModelShape {
  /// The layers of each chunk that has some, as scopes count them; one chunk if it is not split.
  std::vector<LayerRange> chunks;
  int pipeline_rank = 0;
};

[[nodiscard]] ModelShape shape_of(const Profile& profile);
/// One chunk of `layers` layers.
[[nodiscard]] ModelShape shape_of(int layers);

/// The same policy without settings of frameworks.
/// Errors: ConfigError if the settings do not fit the model (more layers than it has).
[[nodiscard]] Rules translate(const Rules& rules, const ModelShape& shape);

/// The plan that the rules, translated for the profile, make. Fixed buffers are kept, and so is
/// what no rule matches. What cannot be recomputed gets its rule's fallback. The plan's notes
/// name the rules that matched nothing.
/// Errors: as translate().
[[nodiscard]] Plan make_plan(const Profile& profile, const Rules& rules);

/// TOML text that parse_rules() reads as equal rules, locations and notes left out. Notes become
/// comments. Precondition: no settings of frameworks.
[[nodiscard]] std::string to_toml(const Rules& rules);

}  // namespace spillway
