// The libraries together, as a run of one process uses them.
#include <fstream>
#include <optional>
#include <sstream>

#include <gtest/gtest.h>

#include "spillway/models/llama.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/checkpoint/tensor_digest.hpp"
#include "train/config/learning_rate.hpp"
#include "train/data/batch.hpp"
#include "train/model/clip.hpp"
#include "train/run/metrics_file.hpp"

namespace spillway::app {
namespace {

using testing::text_of;
namespace fs = std::filesystem;
using spillway::testing::TemporaryFolder;

TrainConfig tiny() {
  return parse_config("", "test",
                      {"model.layers=2", "model.hidden=32", "model.ffn=48", "model.tokens=24",
                       "train.steps=6", "train.micro_batches=3", "train.micro_batch_size=2",
                       "train.clip=0.5", "optimizer.warm_up=2"});
}

LlamaShape shape_of(const ModelConfig& model) {
  LlamaShape shape;
  shape.layers = static_cast<int>(model.layers);
  shape.hidden = model.hidden;
  shape.heads = model.heads;
  shape.kv_heads = model.key_heads();
  shape.ffn = model.ffn;
  shape.tokens = model.tokens;
  shape.vocabulary = model.vocabulary;
  shape.dtype = at::kFloat;
  return shape;
}

/// A run from its start, or from a checkpoint.
class SmallRun {
 public:
  SmallRun(const fs::path& out, std::optional<fs::path> from)
      : config_(tiny()),
        corpus_(make_corpus(config_.data, config_.model, CorpusUse::kTraining)),
        model_(shape_of(config_.model)),
        optimizer_(named(model_), config_.optimizer),
        clipper_(positions(), static_cast<std::int64_t>(model_.parameters().size()), at::kCPU),
        scaler_(at::kCPU, {1024, 2, 2, 0.5}) {
    if (from) {
      const Checkpoint checkpoint(*from);
      restore(checkpoint, optimizer_);
      scaler_.set_state(checkpoint.state().loss_scale.value());
      losses_ = LossDigest(checkpoint.state().losses);
      step_ = checkpoint.state().step;
    }
    metrics_.emplace(out / "metrics.jsonl",
                     from ? std::optional<std::int64_t>(step_) : std::nullopt);
  }

  double step() {
    const TrainConfig& config = config_;
    const BatchShape shape{config.train.micro_batches, 1, config.train.micro_batch_size};
    optimizer_.zero_gradients();
    double loss = 0;
    for (std::int64_t i = 0; i < shape.micro_batches; ++i) {
      const Batch batch = read_batch(*corpus_, first_sample(shape, {step_, i, 0}), shape.size,
                                     config.model.tokens, at::kCPU);
      const at::Tensor part =
          model_.loss(batch.tokens, batch.targets).div(static_cast<double>(shape.micro_batches));
      scaler_.scale(part).backward();
      loss += part.item<double>();
    }
    const std::vector<at::Tensor> gradients = optimizer_.gradients();
    scaler_.unscale(gradients);
    (void)clip(gradients, clipper_.squared_norms(gradients), config.train.clip);
    if (scaler_.finite()) {
      optimizer_.step(learning_rate(config.optimizer, config.train.steps, step_));
    }
    scaler_.update();
    losses_.add(step_, loss);
    ++step_;
    metrics_->write({{"step", step_}, {"loss", loss}});
    return loss;
  }

  void save_to(const fs::path& folder) const {
    const CheckpointWriter writer(folder, step_);
    writer.begin();
    save(writer, 0, optimizer_);
    writer.complete(1, {step_, to_toml(config_), losses_.value(), scaler_.state()});
  }

  [[nodiscard]] std::string digest() const {
    std::vector<NamedDigest> digests;
    for (const NamedTensor& each : optimizer_.parameters()) digests.push_back(tensor_digest(each));
    return digest_line(combined_digest(digests), losses_.value());
  }

 private:
  static std::vector<NamedTensor> named(const Llama& model) {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      tensors.push_back({model.parameter_names()[i], model.parameters()[i]});
    }
    return tensors;
  }

  [[nodiscard]] std::vector<std::int64_t> positions() const {
    std::vector<std::int64_t> positions(model_.parameters().size());
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int64_t>(i);
    return positions;
  }

  TrainConfig config_;
  std::unique_ptr<Corpus> corpus_;
  Llama model_;
  Optimizer optimizer_;
  GradientClipper clipper_;
  LossScaler scaler_;
  LossDigest losses_;
  std::int64_t step_ = 0;
  std::optional<MetricsFile> metrics_;
};

TEST(TrainingRun, ResumedIsEqualToAnUnbrokenOne) {
  const TemporaryFolder folder;
  SmallRun unbroken(folder.path() / "a", std::nullopt);
  for (int i = 0; i < 6; ++i) (void)unbroken.step();

  const fs::path checkpoints = folder.path() / "checkpoints";
  {
    SmallRun broken(folder.path() / "b", std::nullopt);
    for (int i = 0; i < 3; ++i) (void)broken.step();
    broken.save_to(checkpoints);
    (void)broken.step();  // Lost, as in a crash.
  }
  SmallRun resumed(folder.path() / "b", latest_checkpoint(checkpoints));
  for (int i = 3; i < 6; ++i) (void)resumed.step();
  EXPECT_EQ(resumed.digest(), unbroken.digest());
  EXPECT_EQ(text_of(folder.path() / "b" / "metrics.jsonl"),
            text_of(folder.path() / "a" / "metrics.jsonl"));
}

TEST(TrainingRun, LearnsTheText) {
  const TemporaryFolder folder;
  SmallRun run(folder.path(), std::nullopt);
  const double first = run.step();
  double last = first;
  for (int i = 0; i < 5; ++i) last = run.step();
  EXPECT_LT(last, first);
}

TEST(TrainingRun, HasItsConfigInItsCheckpoint) {
  const TemporaryFolder folder;
  const SmallRun run(folder.path(), std::nullopt);
  run.save_to(folder.path() / "checkpoints");
  const Checkpoint checkpoint(*latest_checkpoint(folder.path() / "checkpoints"));
  EXPECT_EQ(parse_config(checkpoint.state().config, "index.json"), tiny());
}

}  // namespace
}  // namespace spillway::app
