/// Identifies a storage without keeping its memory; internal. While a pin exists, the address of
/// the StorageImpl is not reused, so it identifies the storage.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace spillway {

class StoragePin {
 public:
  StoragePin() : weak_(c10::intrusive_ptr<c10::StorageImpl>()) {}
  /// Precondition: the storage is alive.
  explicit StoragePin(c10::StorageImpl* storage)
      : weak_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)) {}

  [[nodiscard]] bool is(const c10::StorageImpl* storage) const noexcept {
    return storage != nullptr && weak_._unsafe_get_target() == storage;
  }
  [[nodiscard]] const c10::StorageImpl* address() const noexcept {
    return weak_._unsafe_get_target();
  }
  [[nodiscard]] bool alive() const noexcept { return weak_.use_count() > 0; }
  /// The storage if it is still alive; else null.
  [[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> lock() const noexcept { return weak_.lock(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> weak_;
};

}  // namespace spillway
