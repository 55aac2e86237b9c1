/// One profiled pass of each model chunk: buffers, the operators that made and saved them, when
/// they were needed again, the times of operators, the speed of the link. Values without behaviour;
/// rules and the planner read them, docs/profile-and-plan.md describes their JSON.
///
/// Buffers are known by structure, never by size: sizes may change from step to step, the position
/// and the signatures of what is saved may not.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/core/bytes.hpp"

namespace spillway {

/// The "schema" field of a profile's JSON. Its number grows when older readers would misread it.
inline constexpr std::string_view kProfileSchema = "spillway.profile/5";

/// In OperatorProfile::no_replay and RecipeProfile::reason: the one obstacle that rules can lift.
inline constexpr std::string_view kCollective = "a collective";

/// How a buffer is identified within its pass. Equal in every step of the same model.
struct Position {
  std::string scope;  ///< Where it was first saved, a dot path: "layers.3.mlp"; may be empty.
  std::string saver;  ///< The operator that first saved it: "aten::mm".
  int ordinal = 0;    ///< Counts the buffers of this pass with the same scope and saver.

  auto operator<=>(const Position&) const = default;
};

/// Why a buffer is never moved, whatever rules say.
enum class FixedReason {
  kNone,
  kParameter,
  kRegisteredBuffer,
  kCallerOwned,
  kChangedLater,
  kOwnedElsewhere,  ///< Its owner replaced or freed its memory, or wrote into it unseen.
  kOtherDevice,
  kUnsupportedLayout,
  kSmall,
};

/// "none", "parameter", "registered buffer", "caller-owned", "changed later", "owned elsewhere",
/// "other device", "unsupported layout", "small".
[[nodiscard]] std::string_view to_string(FixedReason reason);

/// Whether the storage of a buffer with this reason counts as one of the step: so do all but those
/// that were there before it (parameters, registered buffers) and those that are elsewhere. What
/// counts is not in Moment::untracked_bytes from the moment the buffer is made (its call's end, or
/// its save, whichever comes first) until its drop.
[[nodiscard]] bool is_step_memory(FixedReason reason);

/// One operator call of the forward pass, as autograd saw it; its number is its index in the
/// chunk's list.
struct OperatorProfile {
  std::string name;
  std::string scope;
  int layer = -1;  ///< -1: in none of the repeated layers.
  std::int64_t device_ns = 0;
  Bytes workspace;
  std::vector<int> reads;  ///< Values, by id; including those it changes in place.
  std::vector<int> makes;  ///< Values, in the order of its outputs.
  std::string no_replay;   ///< Why it cannot be repeated; empty if it can.
  /// How to match it in a pass that has more or fewer calls (tables made once, casts of weights
  /// that are kept for the next pass): the tensors that had been saved when it began,
  int saves = 0;
  /// and its number, from 0, among the calls of the same name since then. Those that read nothing
  /// of what the pass made are counted apart: -1, -2, ...
  int ordinal = 0;

  bool operator==(const OperatorProfile&) const = default;
};

/// What operators read and make: the content of one storage at one version. A view is the same
/// value as its storage.
struct ValueProfile {
  Bytes size;
  int call = -1;             ///< The call that made it; -1: it came from outside of the pass.
  int buffer = -1;           ///< The saved buffer that holds it; -1: autograd did not save it.
  bool overwritten = false;  ///< A later call changed its storage in place.
  /// From outside, and still there when backward runs: a parameter, a batch.
  bool persistent = false;

  bool operator==(const ValueProfile&) const = default;
};

/// The operator that made a buffer.
struct Producer {
  std::string name;  ///< Empty if unknown: a batch input, what another stage sent.
  std::string scope;
  int layer = -1;
  int call = -1;  ///< Its number among the chunk's operator calls; -1 if unknown.

  bool operator==(const Producer&) const = default;
};

/// One operator that saved the buffer.
struct Save {
  std::string saver;
  std::string scope;

  bool operator==(const Save&) const = default;
};

/// Whether a buffer can be recomputed by repeating operators; which ones follows from the chunk's
/// operators and values.
struct RecipeProfile {
  bool usable = false;
  std::string reason;  ///< Why not, if it is not usable.

  bool operator==(const RecipeProfile&) const = default;
};

/// One storage that autograd saved something of.
struct BufferProfile {
  int id = 0;  ///< Its index in the chunk's list, which is in the order of first saves.
  Bytes size;
  Position position;
  int layer = -1;  ///< Of the first save.
  Producer producer;
  std::vector<Save> saves;  ///< In order, at least one; the first is that of `position`.
  FixedReason fixed = FixedReason::kNone;
  int first_unpack = -1;  ///< Its first and last index in `unpack_order`; -1: never unpacked.
  int last_unpack = -1;
  int value = -1;  ///< What it holds; -1 if unknown.
  /// The first moment at which only autograd references it: moving it earlier frees nothing. -1:
  /// the model references it for as long as autograd does, or it is never moved.
  int last_forward_use = -1;
  RecipeProfile recipe;

  bool operator==(const BufferProfile&) const = default;
};

/// One saved tensor: a window on a buffer.
struct SiteProfile {
  int buffer = 0;
  std::string dtype;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  ///< In elements.
  /// Of how its value was made (docs/profile-and-plan.md), the same in every step and process. 0:
  /// unknown, as in profiles of the last schema.
  std::uint64_t signature = 0;

  bool operator==(const SiteProfile&) const = default;
};

/// What happens at a moment of a recorded pass.
enum class MomentKind {
  kCallBegins,      ///< `index`: the operator call.
  kCallEnds,        ///< `index`: the operator call.
  kSave,            ///< `index`: the site that was saved.
  kBackwardBegins,  ///< Once a pass; all before it is forward, all after it backward.
  kUnpack,          ///< `index`: the position in `unpack_order`. Before the buffer is fetched.
  kDrop,            ///< `index`: the buffer that autograd has released: its last site is gone.
  kEnd,             ///< The last one: the pass's backward is over.
};

/// "call begins", "call ends", "save", "backward begins", "unpack", "drop", "end".
[[nodiscard]] std::string_view to_string(MomentKind kind);

/// A moment of a recorded pass, and what the device did between the moment before it and this one.
struct Moment {
  MomentKind kind{};
  int index = -1;  ///< Its subject; see MomentKind.
  /// Time of the compute stream without its waits for copies. Of the recording step it includes the
  /// slowdown by copies, of later steps it does not.
  std::int64_t compute_ns = 0;
  /// The peak of allocated bytes above those at the beginning of the step that no saved buffer
  /// owns: unsaved values, workspaces, gradients. Storages for which is_step_memory() holds are
  /// subtracted while they exist, and so is what other passes in flight had when the forward or
  /// backward of this pass began. Negative where memory from before the step was saved or freed. 0
  /// where the device does not count.
  std::int64_t untracked_bytes = 0;

  bool operator==(const Moment&) const = default;
};

/// One model chunk: what runs between two transfers of a pipeline, or the whole model.
struct ChunkProfile {
  int chunk = 0;
  int first_layer = 0;  ///< The smallest layer number in this chunk, as its scopes count.
  int layers = 0;
  std::vector<OperatorProfile> operators;
  std::vector<ValueProfile> values;  ///< By id.
  std::vector<BufferProfile> buffers;
  std::vector<SiteProfile> sites;
  /// Calls that had begun when the first tensor was saved, that one included.
  int calls_before_first_save = 0;
  std::vector<int> unpack_order;  ///< Buffers in the order backward asked for them.
  std::vector<Moment> timeline;   ///< In order; empty in profiles without times.
  /// By moment: Moment::untracked_bytes of a later pass of the step, which adds to existing
  /// gradients; those are not counted. Empty: no such pass was profiled.
  std::optional<std::vector<std::int64_t>> later_untracked_bytes;
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  Bytes theoretical_peak;  ///< Of saved buffers, if everything were kept.
  Bytes measured_peak;     ///< Of the device in the recorded step.

  bool operator==(const ChunkProfile&) const = default;
};

/// Bytes per second, while the device computes.
struct LinkSpeed {
  double out = 0;  ///< Device to host, alone.
  double back = 0;
  double out_with_back = 0;  ///< Device to host while as many bytes are copied back.
  double back_with_out = 0;
  /// By how much operators take longer while something is copied out, or back: 0.01 is one percent.
  /// Both at once add up. Empty: not measured, and taken as 0.
  std::optional<double> slows_out = {};
  std::optional<double> slows_back = {};

  bool operator==(const LinkSpeed&) const = default;
};

struct Profile {
  std::string device;
  LinkSpeed link;
  int layers = 0;           ///< Numbers of repeated layers are below this.
  std::string layer_scope;  ///< Where they are: "layers", "model.layers".
  int pipeline_rank = 0;
  Bytes fixed;  ///< Allocated on the device when the recording step began: weights, gradients.
  Bytes granularity;  ///< The device allocator rounds sizes up to multiples of this; 0: none.
  std::vector<ChunkProfile> chunks;

  bool operator==(const Profile&) const = default;
};

/// A digest that two profiles share exactly if their chunks save the same buffers by position,
/// through tensors of the same types and numbers of dimensions in the same order.
[[nodiscard]] std::string structure_digest(const Profile& profile);

/// Lines a person can read; profile_from_json() gives an equal value.
/// Errors: InvalidArgument if a number is not finite.
[[nodiscard]] std::string to_json(const Profile& profile);

/// Errors: ConfigError with file, JSON path, what was wanted and what was found: for
/// text that is not JSON, another schema, missing, unknown and wrongly typed fields, and numbers
/// that point to nothing.
[[nodiscard]] Profile profile_from_json(std::string_view text, std::string_view file_name);

/// Errors: IoError if the file cannot be read, else as profile_from_json().
[[nodiscard]] Profile load_profile(const std::filesystem::path& path);

/// Readers of `path` see the old file or the whole new one, never a part.
/// Errors: IoError; the old file is as it was then.
void save_profile(const Profile& profile, const std::filesystem::path& path);

}  // namespace spillway
