/// What offloaded buffers were copied from, as long as others hold it; internal.
///
/// A step that compares copies looks at the original once more when its last holder lets it go:
/// autograd would have held it, and read what was written into it until then. Holding what others
/// hold takes no memory. Under the session's lock.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/Storage.h>

#include "torch/record/pass.hpp"
#include "torch/record/session_mutex.hpp"

namespace spillway {

class CopySources {
 public:
  struct Source {
    std::weak_ptr<SavedBuffer> buffer;
    c10::Storage storage;
  };

  [[nodiscard]] bool empty() const noexcept { return sources_.empty(); }

  /// `buffer` is about to be released.
  void add(const std::shared_ptr<SavedBuffer>& buffer) {
    sources_.push_back({buffer, buffer->storage});
  }

  [[nodiscard]] bool holds(const c10::Storage& storage) const {
    return std::ranges::any_of(sources_, [&](const Source& each) {
      return each.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
    });
  }

  /// Those that nobody else holds any more.
  [[nodiscard]] std::vector<Source> take_unshared() {
    std::vector<Source> taken;
    const auto is_shared = [](const Source& each) { return each.storage.use_count() > 1; };
    const auto first = std::stable_partition(sources_.begin(), sources_.end(), is_shared);
    std::move(first, sources_.end(), std::back_inserter(taken));
    sources_.erase(first, sources_.end());
    return taken;
  }

  /// Where backward begins: what the program still holds then mostly lives until backward reads it.
  [[nodiscard]] std::vector<Source> take_all() { return std::exchange(sources_, {}); }

  void clear(SessionMutex& mutex) {
    for (Source& each : sources_) mutex.free_outside(std::move(each.storage));
    sources_.clear();
  }

 private:
  std::vector<Source> sources_;
};

}  // namespace spillway
