#include "train/run/job.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>

#include <ATen/ATen.h>

#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/tensor/tensor_modules.hpp"
#include "train/checkpoint/parameter_pieces.hpp"
#include "train/config/learning_rate.hpp"
#include "train/config/moe_layers.hpp"
#include "train/data/batch.hpp"
#include "train/model/device_memory.hpp"
#include "train/model/model_layers.hpp"
#include "train/run/rank_texts.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {
namespace {

TopologySizes sizes_of(const ParallelConfig& config) {
  TopologySizes sizes;
  sizes.data = static_cast<int>(config.data);
  sizes.pipeline = static_cast<int>(config.pipeline);
  sizes.tensor = static_cast<int>(config.tensor);
  sizes.expert = static_cast<int>(config.expert);
  return sizes;
}

TensorParallel tensor_of(const ParallelConfig& config, World& world, const Topology& topology) {
  if (config.tensor == 1) return {};
  return {world.group("tensor", topology.partition(Axis::kTensor)), config.sequence_parallel};
}

PipelineLayerOptions layer_options(const TrainConfig& config, at::Device device,
                                   const TensorParallel& tensor) {
  PipelineLayerOptions options;
  if (!config.parallel.profile.empty()) {
    options.profile = std::make_shared<const Profile>(load_profile(config.parallel.profile));
  }
  options.chunks = static_cast<int>(config.parallel.virtual_stages);
  options.loss_fn = [tensor](const at::Tensor& logits, const at::Tensor& targets) {
    return vocabulary_cross_entropy(tensor, logits, targets);
  };
  options.seg_method =
      segmentation_method(config.parallel.segmentation, model_layers(config.model, device, tensor));
  options.recompute_interval = static_cast<int>(config.parallel.recompute_interval);
  options.recompute_offload = config.parallel.recompute_offload;
  options.recompute_partition = config.parallel.recompute_partition;
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.device = device;
  options.tensor = tensor;
  return options;
}

std::optional<at::ScalarType> autocast_of(const std::string& precision) {
  if (precision == "bf16") return at::kBFloat16;
  if (precision == "fp16") return at::kHalf;
  return std::nullopt;
}

PipelineRunnerOptions runner_options(const TrainConfig& config) {
  PipelineRunnerOptions options;
  options.schedule = parse_schedule_kind(config.parallel.schedule);
  options.autocast = autocast_of(config.train.precision);
  return options;
}

}  // namespace

TrainingJob::TrainingJob(const TrainConfig& config, World& world, at::Device device)
    : config_(config),
      device_(device),
      topology_(world.size(), sizes_of(config.parallel)),
      tensor_(tensor_of(config.parallel, world, topology_)),
      model_(std::make_unique<PipelineLayer>(
          model_layers(config.model, device, tensor_,
                       world.group("expert", topology_.partition(Axis::kExpert))),
          with_topology(layer_options(config, device, tensor_), topology_, world.rank()))),
      tensor_ranks_(std::make_unique<TensorRanks>(*model_)),
      groups_(make_pipeline_groups(world, topology_, *model_)),
      whole_model_(
          world.group("whole model", topology_.partition({Axis::kPipeline, Axis::kExpert}))),
      coordinates_(topology_.coordinates(world.rank())),
      runner_(std::make_unique<PipelineRunner>(*model_, groups_, runner_options(config))),
      corpus_(make_corpus(config.data, config.model, CorpusUse::kTraining)) {
  if (topology_.size(Axis::kTensor) > 1) {
    shards_ = shard_group(world.group("shard", topology_.partition(Axis::kTensor)));
  }
  // The runner has made all gradients, which stay where they are.
  optimizer_ = std::make_unique<Optimizer>(parameters(), config.optimizer);
  assign_norm_positions();
  if (config.train.precision == "fp16") scaler_.emplace(device);
  if (config.train.evaluate_every > 0) {
    evaluation_ = make_corpus(config.data, config.model, CorpusUse::kEvaluation);
  }
}

void TrainingJob::assign_norm_positions() {
  std::string names;
  std::int64_t elements = 0;
  for (const StageParameter& parameter : model_->stage_parameters()) {
    if (answers_for(parameter)) elements += whole_elements(parameter, tensor_.group);
  }
  for (const NamedTensor& parameter : own_parameters()) names += parameter.name + "\n";
  at::Tensor count = at::full({1}, elements, at::TensorOptions(device_).dtype(at::kLong));
  whole_model_.all_reduce(count);
  parameter_count_ = count.item<std::int64_t>();
  std::map<std::string, std::int64_t> positions;
  for (const std::string& text : gather_texts(whole_model_, names, device_)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) positions.emplace(name, 0);
  }
  std::int64_t next = 0;
  for (auto& [name, position] : positions) position = next++;
  std::vector<std::int64_t> mine;
  for (const NamedTensor& parameter : counted_parameters()) {
    mine.push_back(positions.at(parameter.name));
  }
  clipper_ = std::make_unique<GradientClipper>(mine, next, device_);
}

std::vector<NamedTensor> TrainingJob::parameters() const {
  return pieces([](const StageParameter&) { return true; });
}

std::vector<NamedTensor> TrainingJob::own_parameters() const {
  return pieces([this](const StageParameter& parameter) { return answers_for(parameter); });
}

std::vector<NamedTensor> TrainingJob::counted_parameters() const {
  return pieces([this](const StageParameter& parameter) {
    return answers_for(parameter) && tensor_ranks_->counts(parameter);
  });
}

bool TrainingJob::answers_for(const StageParameter& parameter) const {
  return !parameter.copy && (parameter.experts.any() || coordinates_.expert == 0);
}

std::vector<NamedTensor> TrainingJob::pieces(
    const std::function<bool(const StageParameter&)>& wanted) const {
  std::vector<NamedTensor> found;
  for (const StageParameter& parameter : model_->stage_parameters()) {
    if (!wanted(parameter)) continue;
    for (NamedTensor& each : pieces_of(parameter)) found.push_back(std::move(each));
  }
  return found;
}

std::vector<at::Tensor> TrainingJob::gradients() const {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : model_->parameters()) {
    copies.push_back(parameter.grad().cpu().clone());
  }
  return copies;
}

std::vector<std::string> TrainingJob::parameter_names() const {
  std::vector<std::string> names;
  for (const StageParameter& parameter : model_->stage_parameters()) {
    names.push_back(parameter.name);
  }
  return names;
}

void TrainingJob::set_steps_done(std::int64_t steps) noexcept {
  steps_done_ = steps;
  runner_->set_step(steps);
}

std::vector<MicroBatch> TrainingJob::next_batches() const {
  const BatchShape shape{config_.train.micro_batches, groups_.data.size(),
                         config_.train.micro_batch_size};
  std::vector<MicroBatch> batches;
  for (std::int64_t i = 0; i < config_.train.micro_batches; ++i) {
    const std::uint64_t first = first_sample(shape, {steps_done_, i, groups_.data.rank()});
    Batch batch = read_batch(*corpus_, first, shape.size, config_.model.tokens, device_);
    batches.push_back({{std::move(batch.tokens)}, std::move(batch.targets)});
  }
  return batches;
}

PassSchedule TrainingJob::passes() const {
  return runner_->passes(static_cast<int>(config_.train.micro_batches));
}

TrainingStep TrainingJob::step(Session* session) {
  const std::vector<MicroBatch> batches = next_batches();
  runner_->zero_gradients();
  TrainingStep result;
  result.before = Bytes(start_measuring_memory(device_));
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor scale =
      scaler_ ? scaler_->scale(at::ones({}, at::TensorOptions(device_))) : at::Tensor();
  const StepOutcome outcome = runner_->train(batches, session, scale);
  wait_for_device(device_);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  result.milliseconds = time.count();
  result.peak = Bytes(peak_memory(device_));
  if (session != nullptr) {
    // Recording, timing and tracing start new peaks of the same allocator.
    if (const std::optional<MeasuredStep> measured = session->last_step()) {
      result.kind = measured->kind;
      result.peak = std::max(result.peak, measured->before + measured->peak);
    }
  }
  result.loss = runner_->mean_loss(outcome).item<double>();
  if (const std::int64_t layers = moe_layers(config_.model); layers > 0) {
    const at::Tensor extra =
        (runner_->mean_extra_losses(outcome) / static_cast<double>(layers)).cpu();
    result.experts = {extra[0].item<double>(), extra[1].item<double>()};
  }
  result.learning_rate = learning_rate(config_.optimizer, config_.train.steps, steps_done_);
  result.skipped = !update(result);
  ++steps_done_;
  return result;
}

bool TrainingJob::update(TrainingStep& step) {
  std::vector<at::Tensor> all;
  std::vector<at::Tensor> own;
  for (const at::Tensor& parameter : model_->parameters()) all.push_back(parameter.grad());
  for (const NamedTensor& parameter : counted_parameters()) own.push_back(parameter.tensor.grad());
  if (scaler_) {
    scaler_->unscale(all);
    tensor_.group.all_reduce(scaler_->not_finite(), Reduce::kMax);
    whole_model_.all_reduce(scaler_->not_finite(), Reduce::kMax);
    const bool finite = scaler_->finite();
    scaler_->update();
    if (!finite) return false;
  }
  at::Tensor norms = clipper_->squared_norms(own);
  tensor_.group.all_reduce(norms);
  whole_model_.all_reduce(norms);
  step.gradient_norm = clip(all, norms, config_.train.clip).item<double>();
  optimizer_->step(step.learning_rate);
  return true;
}

double TrainingJob::evaluate() {
  if (evaluation_ == nullptr) {
    throw InvalidArgument("train", "nothing to evaluate on was opened; set train.evaluate_every");
  }
  std::vector<MicroBatch> batches;
  const std::int64_t size = config_.train.micro_batch_size;
  for (std::int64_t i = 0; i < config_.train.evaluate_batches; ++i) {
    Batch batch = read_batch(*evaluation_, static_cast<std::uint64_t>(i * size), size,
                             config_.model.tokens, device_);
    batches.push_back({{std::move(batch.tokens)}, std::move(batch.targets)});
  }
  return runner_->mean_loss(runner_->evaluate(batches)).item<double>();
}

std::string TrainingJob::describe() const {
  const ModelConfig& model = config_.model;
  std::string text = std::to_string(model.layers) + " layers of width " +
                     std::to_string(model.hidden) + ", " +
                     with_decimals(static_cast<double>(parameter_count_) / 1e6, 1) +
                     " million parameters, " + config_.train.precision + " on " + device_.str() +
                     ", " + std::to_string(config_.train.micro_batches) + " x " +
                     std::to_string(config_.train.micro_batch_size * model.tokens) + " tokens";
  if (topology_.world_size() > 1) text += ", " + topology_.text();
  if (config_.parallel.virtual_stages > 1) {
    text += " x " + std::to_string(config_.parallel.virtual_stages) + " chunks a stage";
  }
  return text;
}

}  // namespace spillway::app
