/// What autograd holds of a session for one saved tensor; internal.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "spillway/core/process.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/graph/weights.hpp"

namespace spillway {

/// A tensor that is kept on the device in its own storage.
class KeptTensor final : public SavedTensor {
 public:
  /// A weight is kept as torch would keep it: its owner may give it other memory until backward.
  /// Another tensor may have been made by the node that saves it, which must not own itself.
  explicit KeptTensor(const at::Tensor& tensor)
      : tensor_(weight_of(tensor).is_same(tensor) ? tensor : without_history(tensor)) {
    if (is_ordinary(tensor)) window_.emplace(tensor);
    if (window_ || tensor.is_inference()) return;
    counter_ = tensor.unsafeGetTensorImpl()->version_counter();
    version_ = counter_.current_version();
  }
  /// `id`: in a step that is timed, else -1. `caller_owned`: its unpacks were profiled.
  KeptTensor(const at::Tensor& tensor, std::shared_ptr<SessionCore> core,
             std::shared_ptr<Pass> pass, int id, bool caller_owned)
      : KeptTensor(tensor) {
    core_ = std::move(core);
    pass_ = std::move(pass);
    id_ = id;
    caller_owned_ = caller_owned;
  }
  ~KeptTensor() override {
    if (core_ == nullptr) return;
    if (!core_->in_its_process()) {
      leak(std::move(pass_));
    } else if (id_ >= 0) {
      core_->drop_kept(pass_, id_, std::move(tensor_));
    }
  }

  [[nodiscard]] at::Tensor unpack() override {
    if (window_) window_->require_unmodified();
    TORCH_CHECK(window_ || tensor_.is_inference() || counter_.current_version() == version_,
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: [",
                tensor_.toString(), "] is at version ", counter_.current_version(),
                "; expected version ", version_, " instead.");
    if (caller_owned_) core_->unpack_caller_owned(*pass_, id_);
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  std::optional<TensorWindow> window_;
  c10::VariableVersion counter_;  // Of a tensor that has no window.
  std::uint32_t version_ = 0;
  std::shared_ptr<SessionCore> core_;
  std::shared_ptr<Pass> pass_;
  int id_ = -1;
  bool caller_owned_ = false;
};

/// A tensor whose buffer the session manages.
class ManagedTensor final : public SavedTensor {
 public:
  ManagedTensor(std::shared_ptr<SessionCore> core, std::shared_ptr<SavedBuffer> buffer, int id,
                const at::Tensor& tensor)
      : core_(std::move(core)), buffer_(std::move(buffer)), id_(id), window_(tensor) {}
  ~ManagedTensor() override { core_->drop(std::move(buffer_), id_); }

  [[nodiscard]] at::Tensor unpack() override { return core_->unpack(*buffer_, window_); }

 private:
  std::shared_ptr<SessionCore> core_;
  std::shared_ptr<SavedBuffer> buffer_;
  int id_;
  TensorWindow window_;
};

}  // namespace spillway
