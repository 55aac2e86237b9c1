/// Tracks which storages of saved buffers are on the device in a recording step, and since when
/// only autograd holds them; internal. Under the session's lock.
///
/// It holds a saved storage until its last forward use, even if the session has released it. So
/// storages are freed only while the clock is paused, never within a measured interval.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Storage.h>

#include "torch/record/copy_sources.hpp"
#include "torch/record/pass.hpp"
#include "torch/record/session_mutex.hpp"

namespace spillway {

/// What the session holds in a recording step beside saved buffers.
class SessionMemory {
 public:
  SessionMemory() = default;
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  virtual ~SessionMemory() = default;

  /// Of what nobody else holds, as the allocator hands it out.
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
  /// How often it holds the storage.
  [[nodiscard]] virtual std::size_t holds(const c10::StorageImpl* storage) const = 0;
};

class StorageWatch {
 public:
  /// Uses `others` only in calls, so it may be made later.
  StorageWatch(Bytes granularity, const SessionMemory& others)
      : granularity_(granularity), others_(&others) {}

  /// A buffer was saved for the first time; `buffer` is null for one that is never moved.
  void add(const std::shared_ptr<Pass>& pass, int id, const c10::Storage& storage,
           const std::shared_ptr<SavedBuffer>& buffer);
  /// Backward reads it: other owners hold it for backward.
  void unpacked(const Pass& pass, int id, SessionMutex& mutex);
  /// Autograd has released it; if it still lives, it is no saved buffer any more.
  void remove(const Pass& pass, int id, SessionMutex& mutex);
  void clear(SessionMutex& mutex);

  /// Finds storages that only autograd holds since the last call, notes their last forward use in
  /// the pass's profile, and frees those that were released already. `sources` holds some of them,
  /// which does not count.
  void find_last_forward_use(SessionMutex& mutex, const CopySources& sources);

  /// Managed buffers whose memory was freed or replaced, by a program that still holds it, too;
  /// each once.
  struct Moved {
    std::shared_ptr<Pass> pass;
    int id = 0;
  };
  [[nodiscard]] std::vector<Moved> take_moved();

  /// Updates bytes().
  void refresh();
  /// Bytes on the device at the last refresh(), as the allocator hands them out; those that the
  /// session holds beside them included.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    std::shared_ptr<Pass> pass;
    int id = 0;
    std::int64_t bytes = 0;
    bool managed = false;
    std::weak_ptr<SavedBuffer> buffer;
    StoragePin original;
    const void* data = nullptr;  // The original's memory when it was saved; null: it has moved.
    std::size_t nbytes = 0;
    c10::Storage retained;  // Until its last forward use, or until backward reads it.
  };

  [[nodiscard]] std::vector<Entry>::iterator find(const Pass& pass, int id);
  [[nodiscard]] static bool on_device(const Entry& entry);

  Bytes granularity_;
  const SessionMemory* others_;
  std::vector<Entry> entries_;
  std::int64_t bytes_ = 0;
};

}  // namespace spillway
