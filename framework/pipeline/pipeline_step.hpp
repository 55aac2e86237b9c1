/// One step of a stage: its actions one after another, and the tensors under way between them.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/edge.h>

#include "pipeline/pipeline_state.hpp"
#include "spillway/schedule/schedule.hpp"

namespace spillway {

class PipelineStep {
 public:
  /// `pass_step`: gets every forward pass; may be null. `loss_scale`: may be undefined.
  PipelineStep(PipelineRunner::State& state, std::span<const MicroBatch> batches,
               std::vector<PipelineAction> actions, Step* pass_step, at::Tensor loss_scale);

  /// Does all actions. Sends may still be under way afterwards.
  void run();

  /// The weighed mean of the losses; undefined if this stage has none.
  [[nodiscard]] at::Tensor loss() const;
  [[nodiscard]] const ExtraLosses& extra_losses() const noexcept { return extra_; }

 private:
  using Key = std::pair<int, int>;  // Chunk, micro-batch.

  /// What backward will need of a pass.
  struct PendingBackward {
    Tensors inputs;                              // Leaves; empty on the first part.
    std::vector<torch::autograd::Edge> outputs;  // Those that are differentiable.
    TensorShapes shapes;                         // Of all outputs.
  };

  /// The receives of one channel, in order.
  struct Expected {
    std::vector<std::size_t> actions;
    std::size_t posted = 0;
    std::size_t taken = 0;
    Incoming incoming;  // Of the one that was posted last.
  };

  void forward(const PipelineAction& action);
  void backward(const PipelineAction& action);
  void send_activation(const PipelineAction& action);
  void send_gradient(const PipelineAction& action);
  /// Before a message: frees the memory of earlier ones that have left.
  void make_room(StageChannel& channel) const;
  void receive_activation(const PipelineAction& action);
  void receive_gradient(const PipelineAction& action);

  /// Names the pass whose forward comes next to the session, or a backward: before its inputs are
  /// received or computed.
  void begin_pass(const Key& key);
  void begin_backward();

  /// Expects the next message of each channel, if its shapes are known.
  void post_ahead();
  [[nodiscard]] const TensorShapes* known_shapes(const PipelineAction& action) const;
  [[nodiscard]] std::pair<int, std::uint64_t> border(const PipelineAction& action) const;
  [[nodiscard]] at::Tensor weight_of(int micro_batch, const at::TensorOptions& options) const;
  [[nodiscard]] double share_of(int micro_batch) const;

  PipelineRunner::State& state_;
  PipelineLayer& model_;
  std::span<const MicroBatch> batches_;
  std::vector<PipelineAction> actions_;
  Step* pass_step_;
  at::Tensor loss_scale_;
  at::Device device_;
  std::vector<std::uint64_t> signatures_;  // By micro-batch.
  std::vector<int> backwards_left_;        // By chunk.
  std::map<Key, Tensors> inputs_;          // Received or handed over, not used yet.
  std::map<Key, Tensors> output_gradients_;
  std::map<Key, Tensors> outputs_;  // Not sent yet.
  std::map<Key, Tensors> input_gradients_;
  std::map<Key, PendingBackward> pending_backwards_;
  std::vector<at::Tensor> losses_;  // By micro-batch.
  ExtraLosses extra_;
  /// Then a message waits until the one before it has left: the other end expects it in time, and
  /// what was sent does not pile up. While shapes are sent, receives are not posted early.
  bool all_known_ = true;
  std::optional<Key> begun_;  // The pass whose forward the session was given last.
  Expected activations_;
  Expected gradients_;
};

}  // namespace spillway
