/// The explicit policy language: a list of rules, of which the first that matches a buffer decides.
/// TOML, described in docs/rules.md. The words of other frameworks (frameworks.hpp) may stand in
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

/// Conditions, all of which must hold, and what to do then. A list of patterns holds if one of them
/// matches; an empty one always does.
///
/// Patterns: `*` is any text, dots included, `?` one character. A pattern for scopes also matches
/// everything inside the scope it names; with a dot at its end, only that scope itself.
struct Rule {
  std::string name;  ///< For people; may be empty.

  std::vector<std::string> scope;     ///< Where it was saved, and
  std::vector<std::string> saved_by;  ///< by which operator: one save must fit both.
  std::vector<std::string> module;    ///< Module words: a save inside one of these modules.
  std::vector<std::string> producer;  ///< The operator that made it,
  std::vector<std::string> made_in;   ///< and the scope that ran in.
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
  /// Of the matching bytes of a chunk, in order of production, these first ones and what lies
  /// beyond the fraction are left to the rules below.
  Bytes skip;
  double fraction = 1;

  SourceLocation location;

  bool operator==(const Rule&) const = default;
};

struct Rules {
  std::vector<Rule> rules;
  Limits limits;
  /// Instead of limits.offload_window: so many times the bytes that the offloaded modules of one layer
  /// have. 0: every offload is waited for.
  std::optional<int> offload_window_modules;
  /// What collectives make may be recomputed; all ranks must have the same rules then.
  bool recompute_collectives = false;
  /// The planner may shard what is equal on all ranks of the session's shard group.
  bool plan_shards = false;
  std::optional<FrameworkWords> words;  ///< Not translated yet; they come after `rules`.
  std::vector<std::string> notes;       ///< What the reader of the rules should know.

  bool operator==(const Rules&) const = default;
};

/// Errors: ConfigError "[rules] file:line:column: key ...", with the nearest valid word, for text
/// that is not TOML, unknown keys, wrong types, values that cannot be, and words of frameworks that
/// have no meaning together.
[[nodiscard]] Rules parse_rules(std::string_view text, std::string_view file_name);

/// Errors: IoError if the file cannot be read, else as parse_rules().
[[nodiscard]] Rules load_rules(const std::filesystem::path& path);

/// Whether plans by these rules, or under them, may shard.
[[nodiscard]] bool may_shard(const Rules& rules);

/// What words of frameworks are translated for.
struct ModelShape {
  /// The layers of each chunk that has some, as scopes count them; one chunk if it is not cut.
  std::vector<LayerRange> chunks;
  int pipeline_rank = 0;
};

[[nodiscard]] ModelShape shape_of(const Profile& profile);
/// One chunk of `layers` layers.
[[nodiscard]] ModelShape shape_of(int layers);

/// The same policy without words of frameworks.
/// Errors: ConfigError if the words do not fit the model (more layers than it has).
[[nodiscard]] Rules translate(const Rules& rules, const ModelShape& shape);

/// The plan that the rules, translated for the profile, make. Fixed buffers are kept, and so is
/// what no rule matches. What cannot be recomputed gets its rule's second choice. Its notes say
/// which rules matched nothing.
/// Errors: as translate().
[[nodiscard]] Plan make_plan(const Profile& profile, const Rules& rules);

/// TOML text that parse_rules() reads as equal rules, places and notes left out. Notes become
/// comments. Precondition: no words of frameworks.
[[nodiscard]] std::string to_toml(const Rules& rules);

}  // namespace spillway
