/// A recorded pass as the planner and the simulator see it: buffers and calls as intervals of
/// moments. Derived from the profile alone, without a plan.
///
/// Moments are those of ChunkProfile::timeline, by index. The time and bytes of a
/// moment are those of the piece between the moment before and itself; "from moment a to moment b"
/// means the pieces a+1 .. b.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway {

/// The lifetime of a saved buffer in the pass.
struct BufferLife {
  std::int64_t bytes = 0;  ///< As the allocator hands them out.
  /// The moment at which it was made: the end of its call, or its save if that comes first. While
  /// its call runs it is in Moment::untracked_bytes.
  int allocated = 0;
  int saved = 0;  ///< The moment of its first save.
  /// From this moment on only autograd references it; `dropped` if there is none.
  int last_forward_use = 0;
  int first_need = -1;  ///< The first and last unpack, as moments; -1: never.
  int last_need = -1;
  int dropped = 0;  ///< The moment at which autograd releases it; the end, if it does not.
  /// Its bytes are its own, not in Moment::untracked_bytes: is_step_memory().
  bool counted = false;
  bool managed = false;       ///< The session manages it, even if it must not move it.
  bool movable = false;       ///< Not fixed.
  bool caller_owned = false;  ///< The session only sees its unpacks.
};

/// The interval of a call in the pass.
struct CallLife {
  int begins = -1;  ///< Moments; -1: it is not in the timeline.
  int ends = -1;
  std::int64_t ns = 0;  ///< From one to the other, what it calls inside included.
};

struct PassModel {
  const ChunkProfile* chunk = nullptr;
  int backward_begins = 0;                ///< The moment.
  int end = 0;                            ///< The last moment.
  std::vector<BufferLife> buffers;        ///< By id.
  std::vector<CallLife> calls;            ///< By number.
  std::vector<std::int64_t> value_bytes;  ///< By value: as the allocator hands them out.
  /// By value: the moment at which its last reader in forward ends, or its maker, if none reads it.
  /// -1: no operator is known to make or read it.
  std::vector<int> last_read;
  std::vector<int> save_moment;    ///< By site.
  std::vector<int> save_call;      ///< By site: the innermost call that ran then; -1: none.
  std::vector<int> unpack_moment;  ///< By index in the order of unpacks.
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
};

/// Keeps a pointer to the chunk, which must outlive the model.
/// Errors: InvalidArgument if the chunk has no timeline.
[[nodiscard]] PassModel model_of(const ChunkProfile& chunk, Bytes granularity);

}  // namespace spillway
