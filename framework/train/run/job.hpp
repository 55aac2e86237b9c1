/// One rank of a training run: its stage of the model, its share of the data, its optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/comm/topology.hpp"
#include "spillway/comm/world.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/groups/shard_group.hpp"
#include "spillway/pipeline/pipeline_runner.hpp"
#include "spillway/torch/session_report.hpp"
#include "train/config/config.hpp"
#include "train/data/corpus.hpp"
#include "train/model/clip.hpp"
#include "train/model/loss_scaler.hpp"
#include "train/model/optimizer.hpp"
#include "train/run/tensor_ranks.hpp"

namespace spillway::app {

struct TrainingStep {
  double loss = 0;  ///< The mean over the whole step, the same on every rank.
  double learning_rate = 0;
  double gradient_norm = 0;      ///< Before clipping.
  bool skipped = false;          ///< fp16: gradients were not finite, nothing was updated.
  double milliseconds = 0;       ///< Of forward and backward.
  Bytes peak;                    ///< The most that was allocated on the device in them.
  Bytes before;                  ///< What was allocated when they began.
  std::optional<StepKind> kind;  ///< Of a session's step.

  /// The losses of a mixture's routers without their coefficients, as the mean over its layers; 0
  /// where they are off.
  struct ExpertLosses {
    double balance = 0;
    double z = 0;
  };
  std::optional<ExpertLosses> experts;  ///< Only with experts.
};

/// Jobs of one config do the same to the bit, under deterministic algorithms, on every layout of
/// stages and chunks; tensor-parallel ranks sum in another order than one does. Gradients
/// and the optimizer's memory are there from the start, so that the first step allocates no more
/// than the others.
///
/// Ordering: all ranks of the world make it and call its functions together.
/// Threads:  one at a time.
class TrainingJob {
 public:
  /// Errors: InvalidArgument for a model or a layout that cannot be, with the arithmetic; as
  /// make_corpus().
  TrainingJob(const TrainConfig& config, World& world, at::Device device);
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  /// Forward, backward and update on the next step's text, within a step of `session` if there is
  /// one. Waits for the device.
  /// Errors: as PipelineRunner::train(). Nothing was updated then: alone in the world the next call
  /// repeats the step.
  TrainingStep step(Session* session);

  /// The mean loss on the evaluation text.
  [[nodiscard]] double evaluate();

  /// The passes of a step on this rank, as the session gets them.
  [[nodiscard]] PassSchedule passes() const;

  /// Steps that were done, those before a checkpoint included.
  [[nodiscard]] std::int64_t steps_done() const noexcept { return steps_done_; }
  void set_steps_done(std::int64_t steps) noexcept;

  [[nodiscard]] const PipelineLayer& model() const noexcept { return *model_; }
  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] const PipelineGroups& groups() const noexcept { return groups_; }
  [[nodiscard]] const TensorRanks& tensor_ranks() const noexcept { return *tensor_ranks_; }
  /// The tensor-parallel ranks, for the session's use alone; null for one rank.
  [[nodiscard]] const std::shared_ptr<ShardGroup>& shards() const noexcept { return shards_; }
  [[nodiscard]] at::Device device() const noexcept { return device_; }
  [[nodiscard]] Optimizer& optimizer() noexcept { return *optimizer_; }
  /// Only with fp16.
  [[nodiscard]] LossScaler* scaler() noexcept { return scaler_ ? &*scaler_ : nullptr; }
  /// All of this rank, those of experts one by one, under names that do not depend on the layout.
  [[nodiscard]] std::vector<NamedTensor> parameters() const;
  /// The parameters that this rank is responsible for among those of one copy of the model: not the
  /// copies of shared ones, and of those that all expert ranks have the first one's.
  [[nodiscard]] std::vector<NamedTensor> own_parameters() const;
  /// The gradients of the last step, by parameter of this rank, copied to the CPU.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  [[nodiscard]] std::vector<std::string> parameter_names() const;

  /// "8 layers of width 64, 0.5 million parameters, ... on cpu, 4 x 64 tokens".
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] std::vector<MicroBatch> next_batches() const;
  void assign_norm_positions();
  /// Whether it is this rank's among those of one copy of the model.
  [[nodiscard]] bool answers_for(const StageParameter& parameter) const;
  /// Those whose gradients this rank adds to the norm of all.
  [[nodiscard]] std::vector<NamedTensor> counted_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> pieces(
      const std::function<bool(const StageParameter&)>& wanted) const;
  /// Clips and updates; false if gradients are not finite.
  bool update(TrainingStep& step);

  TrainConfig config_;
  at::Device device_;
  Topology topology_;
  TensorParallel tensor_;
  std::unique_ptr<PipelineLayer> model_;
  std::unique_ptr<TensorRanks> tensor_ranks_;
  PipelineGroups groups_;
  Group whole_model_;  // The ranks that have one copy of it together.
  Coordinates coordinates_;
  std::shared_ptr<ShardGroup> shards_;
  std::unique_ptr<PipelineRunner> runner_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GradientClipper> clipper_;
  std::optional<LossScaler> scaler_;
  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<Corpus> evaluation_;
  std::int64_t parameter_count_ = 0;
  std::int64_t steps_done_ = 0;
};

}  // namespace spillway::app
