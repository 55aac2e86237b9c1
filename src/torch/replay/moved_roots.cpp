#include "torch/replay/moved_roots.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "torch/hooks/call_recorder.hpp"
#include "torch/replay/verification.hpp"

namespace spillway {

bool has_moved(const Value& value, const c10::StorageImpl& storage) {
  return storage.data() != value.data || storage.nbytes() != value.bytes;
}

std::vector<c10::Storage> MovedRoots::compare_present() {
  std::vector<c10::Storage> garbage;
  if (open_.empty()) return garbage;
  const RecordingPause pause;
  const at::NoGradGuard no_gradients;
  std::erase_if(open_, [&](Recomputed& each) {
    if (!each.storage) return false;
    auto alive = each.root.lock();
    if (!alive) return false;
    garbage.emplace_back(std::move(alive));
    const c10::Storage& present = garbage.back();
    if (present.data() == nullptr || present.nbytes() != each.storage.nbytes()) return false;
    for (const at::Tensor& read : each.read) {
      differs_.push_back(Verification::differs(TensorWindow(read).on(present), read));
    }
    garbage.push_back(std::move(each.storage));
    return true;
  });
  return garbage;
}

std::size_t MovedRoots::count_different(bool cut_short) {
  const std::size_t never_put_back = std::exchange(open_, {}).size();
  const std::size_t different = cut_short ? 0 : never_put_back;
  const std::vector<at::Tensor> differs = std::exchange(differs_, {});
  if (differs.empty()) return different;
  const at::NoGradGuard no_gradients;
  return different + static_cast<std::size_t>(at::stack(differs).sum().item<std::int64_t>());
}

}  // namespace spillway
