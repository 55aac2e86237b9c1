/// Which storages of saved buffers are on the device in a step that is recorded, and since when
/// only autograd holds them; internal. Under the session's lock.
///
/// It holds a saved storage until the model has let it go, even if the session has released it. So
/// storages go only while the session is at work, never in the middle of a piece that is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Storage.h>

#include "torch/record/pass.hpp"
#include "torch/record/session_mutex.hpp"

namespace spillway {

class StorageWatch {
 public:
  explicit StorageWatch(Bytes granularity) : granularity_(granularity) {}

  /// A buffer was saved for the first time; `buffer` is null for one that is never moved.
  void add(const std::shared_ptr<Pass>& pass, int id, const c10::Storage& storage,
           const std::shared_ptr<SavedBuffer>& buffer);
  /// It is wanted: who holds it now has it for backward.
  void unpacked(const Pass& pass, int id, SessionMutex& mutex);
  /// Autograd has given it up; whatever is left of it is not a saved buffer's.
  void remove(const Pass& pass, int id, SessionMutex& mutex);
  void clear(SessionMutex& mutex);

  /// Finds what the model has let go since the last time, tells its pass's record, and frees it if
  /// nobody wants it.
  void find_last_forward_use(SessionMutex& mutex);

  /// Sees again what is on the device,
  void look();
  /// which is so many bytes, as the allocator hands them out.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    std::shared_ptr<Pass> pass;
    int id = 0;
    std::int64_t bytes = 0;
    bool managed = false;
    std::weak_ptr<SavedBuffer> buffer;
    StoragePin original;
    c10::Storage held;  // Until the model has let it go, or backward wants it.
  };

  [[nodiscard]] std::vector<Entry>::iterator find(const Pass& pass, int id);
  [[nodiscard]] static bool on_device(const Entry& entry);

  Bytes granularity_;
  std::vector<Entry> entries_;
  std::int64_t bytes_ = 0;
};

}  // namespace spillway
