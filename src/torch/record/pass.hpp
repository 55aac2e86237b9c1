/// One pass of a step, and the buffers it saved; internal. Guarded by the session's lock.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <c10/core/Storage.h>

#include "engine/records.hpp"
#include "plan/profile/call_key.hpp"
#include "spillway/core/stream.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/shard.hpp"
#include "spillway/transfer/ticket.hpp"
#include "torch/device/memory_hold.hpp"
#include "torch/graph/recipe_book.hpp"
#include "torch/graph/storage_pin.hpp"
#include "torch/graph/tensor_window.hpp"
#include "torch/record/copy_checks.hpp"
#include "torch/record/pass_profiler.hpp"
#include "torch/record/sharded_buffer.hpp"

namespace spillway {

/// A chunk's plan in the form that a pass reads: indexed by site.
struct ChunkLayout {
  struct SiteShape {
    int buffer = 0;
    at::ScalarType dtype{};
    std::size_t dimensions = 0;
    Signature signature = 0;  // 0: unknown.
  };

  /// A buffer that is or may be offloaded.
  struct Reload {
    int buffer = 0;
    int rank = 0;  // As Residency counts; of one that is to be kept, that of the one before.
  };

  struct AnchorShape {
    int output = 0;    // Of its call.
    std::string name;  // Of the call's operator.
    ActionKind action{};
  };

  std::vector<SiteShape> sites;
  // The sites of each signature, in order. Empty: the plan has no signatures.
  std::unordered_map<Signature, std::vector<std::size_t>> sites_of;
  std::vector<ActionKind> action;     // By buffer; anchors come after the buffers.
  std::vector<ActionKind> fallback;   // By buffer: if it cannot be recomputed.
  std::vector<bool> caller_owned;     // By buffer: it stays allocated whatever the session does.
  std::vector<bool> owned_elsewhere;  // By buffer: its owner frees or replaces its memory.
  // By buffer: the scopes of the operators that saved it. Empty: unknown.
  std::vector<std::vector<std::string>> saved_in;
  // By buffer: verification steps recompute it besides. It is to be recomputed, or shares a
  // signature with one that is, whose decision it gets where the program swaps the two.
  std::vector<bool> compared;
  std::vector<std::size_t> bytes;  // By buffer: as profiled.
  std::vector<bool> may_offload;   // By buffer: kept only because the budget has room.
  std::vector<AnchorShape> anchors;
  CallIndex anchor_calls;            // Where each is in `anchors`; has their names.
  std::vector<Reload> reload_order;  // Each buffer once.
  std::vector<bool> shard;           // As `action`.
  GatherOrder gathers;               // As `action`.
  std::size_t shards = 0;            // How many are sharded.
  ChunkResidency residency;
  bool recomputes = false;
  bool must_not_move = false;  // Some buffers are kept because of what is done to them.
  // What a verification step allocates beyond the plan: the recomputed bytes of the layer with the
  // most of them, which exist twice.
  std::size_t verification_bytes = 0;
};

struct SavedBuffer;

/// How what a pass saves compares with the sites of its layout.
enum class Match {
  kAsProfiled,      // The sites in their order, so far.
  kInAnotherOrder,  // Some of them were skipped, or come in another order.
  kUnknownSaves,    // It also saved tensors that are at no site.
};

struct PassKey {
  int chunk = 0;
  int micro_batch = 0;

  friend bool operator==(const PassKey&, const PassKey&) = default;
};

/// Calls of one operator since the last save: what OperatorProfile::ordinal counts.
struct CallCount {
  const OperatorTraits* traits = nullptr;
  int inside = 0;
  int outside = 0;
};

/// What a pass counts whose moments are noted.
struct TimedPassCounts {
  std::size_t moments = 0;
  std::vector<int> sites;  // By buffer: how many of its sites autograd still has.

  /// One more of its sites is saved; whether it is the first.
  bool saved(int buffer) {
    const auto index = static_cast<std::size_t>(buffer);
    if (sites.size() <= index) sites.resize(index + 1);
    return sites[index]++ == 0;
  }
  /// One of its sites is dropped; whether it was the last.
  bool gone(int buffer) { return --sites[static_cast<std::size_t>(buffer)] == 0; }
};

struct Pass : PassRecord {
  PassKey key;
  std::shared_ptr<const ChunkLayout> layout;  // Null in a recording step.
  std::unique_ptr<PassProfiler> profiler;
  std::optional<TimedPassCounts> timed;  // Empty where no moments are noted.
  std::shared_ptr<RecipeBook> book;      // Null where nothing is recomputed.
  int number = 0;                        // In its step.
  int next_call = 0;
  int calls_before_first_save = 0;  // As in ChunkProfile; 0 until then.
  std::vector<CallCount> calls_since_save;
  std::size_t anchors_found = 0;
  std::vector<ValueId> anchors;                                 // Held until backward begins.
  std::vector<std::weak_ptr<SavedBuffer>> pending_collectives;  // Offloaded when complete.
  std::size_t saves = 0;
  std::size_t next_site = 0;     // Expected at the next save.
  std::vector<bool> used_sites;  // Empty: those before next_site.
  std::vector<Signature> found;  // By site, if the plan has no signatures.
  Signature saved = 0;           // Of the sequence of all saves; 0 where nothing is recorded.
  Match match = Match::kAsProfiled;
  std::size_t unpacks = 0;
  std::size_t next_unpack = 0;   // Expected in the profiled order; of a pass that skipped sites.
  std::size_t next_kept = 0;     // The first buffer that was not considered to be evicted yet.
  std::size_t shards_asked = 0;  // How often the other ranks were asked.
  std::vector<std::shared_ptr<ShardedBuffer>> asked;  // Not answered yet, in the order asked.
  // Sharded, or gathered again; in the order of gathers.
  std::vector<std::shared_ptr<ShardedBuffer>> shards;
  std::vector<Stream*> streams;                     // That its operators ran on.
  bool over = false;                                // Its step has ended.
  std::vector<std::weak_ptr<SavedBuffer>> buffers;  // By id in the layout or in the profile.
  std::vector<std::weak_ptr<SavedBuffer>> extra;    // Saved, but not in the layout.

  /// Of one of its calls, once something was saved.
  [[nodiscard]] CallKey key_of(const Call& call) const {
    return call_key(call.number, call.saves, call.ordinal, call.traits->name,
                    calls_before_first_save);
  }

  /// Whether it has saved exactly what was profiled.
  [[nodiscard]] bool as_profiled() const {
    return match == Match::kAsProfiled && layout != nullptr && next_site == layout->sites.size();
  }
};

/// One storage that autograd saved something of.
struct SavedBuffer : BufferRecord, std::enable_shared_from_this<SavedBuffer> {
  std::shared_ptr<Pass> pass;
  int id = -1;              // -1: not known to the pass's layout.
  Signature signature = 0;  // Of the first save; 0 where nothing is recorded.
  Signature recipe = 0;     // Of the calls that recompute it.
  ActionKind action = ActionKind::kKeep;
  std::size_t bytes = 0;
  std::uint32_t version = 0;
  c10::VariableVersion counter;     // Of the tensor that was saved first.
  ValueId value = -1;               // In the pass's book.
  std::vector<ValueId> roots;       // Held in the book while it is to be recomputed or verified.
  std::vector<CallId> freed_reads;  // As in its recipe.
  bool awaited = false;             // Its recipe is complete only after the running call ends.
  bool anchor = false;              // Held for replays; autograd did not save it.
  bool covered = false;             // One of the saved tensors is all of its bytes, where noted.
  std::size_t kept_bytes = 0;       // Of what was saved: the bytes planned to be kept.
  bool verify = false;              // Recomputed besides being saved, and compared.
  // Of what was saved, where it may be compared.
  std::vector<TensorWindow> windows;
  c10::Storage compared;  // Recomputed, with the original's bits: what backward gets.
  StoragePin original;
  const void* data = nullptr;  // The original's memory when it was saved.
  MemoryHold memory_hold;      // That memory while it is copied, where something can keep it.
  c10::Storage storage;        // On the device: the original, or reloaded. Or none.
  Stream* stream = nullptr;    // The one its operators run on.
  Ticket ticket;               // Of an offloaded buffer.
  std::vector<CopyChecks::Part> checked;  // What was saved of it; in steps that check copies.
  std::vector<Stream*> savers;            // Other streams than `stream` that saved it, too.
  std::vector<Stream*> readers;           // Other streams than `stream` that backward read it on.
  std::shared_ptr<ShardedBuffer> shard;   // If it is or was sharded.

  [[nodiscard]] bool on_device() const { return static_cast<bool>(storage); }
  /// Whether its copy is compared with what was saved.
  [[nodiscard]] bool is_checked() const {
    return std::ranges::any_of(checked, [](const auto& part) { return part.saved >= 0; });
  }
  /// Whether it is an anchor whose bytes exist beside the original's, which it does not use again.
  [[nodiscard]] bool has_own_copy() const {
    return anchor && original.address() == nullptr && !on_device();
  }
  /// Whether a storage still has the memory that was saved.
  [[nodiscard]] bool has_saved_memory(const c10::StorageImpl& of) const {
    return of.data() == data && of.nbytes() == bytes;
  }
};

/// A buffer that is not recomputed: its bytes are on the device or in a tier.
[[nodiscard]] inline bool is_stored(const std::shared_ptr<SavedBuffer>& buffer) {
  return buffer != nullptr && !buffer->verify && buffer->action != ActionKind::kRecompute;
}

/// A buffer that replays recompute.
[[nodiscard]] inline bool is_recomputed(const std::shared_ptr<SavedBuffer>& buffer) {
  return buffer != nullptr && (buffer->verify || buffer->action == ActionKind::kRecompute);
}

}  // namespace spillway
