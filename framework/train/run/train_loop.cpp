#include "train/run/train_loop.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include <ATen/ATen.h>

#include "spillway/comm/same_replays.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/checkpoint/tensor_digest.hpp"
#include "train/config/config_difference.hpp"
#include "train/run/metrics_file.hpp"
#include "train/run/rank_texts.hpp"
#include "train/run/stop_signal.hpp"
#include "util/text/progress.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> checkpoint_to_resume(const TrainConfig& config) {
  if (config.train.resume.empty()) return std::nullopt;
  if (config.train.resume != "latest") return fs::path(config.train.resume);
  return latest_checkpoint(config.train.checkpoint);
}

void require_same_run(const Checkpoint& checkpoint, const TrainConfig& config) {
  const TrainConfig saved =
      parse_config(checkpoint.state().config, (checkpoint.path() / "index.json").string());
  const auto differs = differences(saved, config);
  if (differs.empty()) return;
  std::string all;
  for (const std::string& each : differs) all += (all.empty() ? "" : "; ") + each;
  throw InvalidArgument("train",
                        checkpoint.path().string() + " is of another run: " + all +
                            "; set them as they were, or start from step 0 without train.resume");
}

/// One run of steps on one rank.
class Loop {
 public:
  Loop(World& world, TrainingJob& job, Session* session, const TrainConfig& config,
       const LoopOptions& options)
      : world_(world),
        everyone_(world.everyone()),
        job_(job),
        session_(session),
        config_(config),
        options_(options) {}

  LoopResult run() {
    resume();
    open_metrics();
    agree_on_replays();
    Progress progress(std::cerr, is_first() && errors_go_to_a_terminal(), options_.title,
                      static_cast<int>(config_.train.steps));
    while (job_.steps_done() < config_.train.steps) {
      const TrainingStep& step = one_step();
      if (is_first()) progress.update(static_cast<int>(job_.steps_done()), note_of(step));
      if (should_stop()) break;
    }
    const bool ended_early = result_.stopped_by != 0;
    if (options_.writes && !config_.train.checkpoint.empty() && saved_at_ != job_.steps_done()) {
      save();
    }
    if (ended_early && is_first()) say_why();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool is_first() const { return world_.rank() == 0; }
  /// One copy of the model is written, each part by the responsible rank, with the ranks
  /// that share its tensors.
  [[nodiscard]] bool is_writer() const { return job_.groups().same_experts.rank() == 0; }

  void resume() {
    const auto path = checkpoint_to_resume(config_);
    if (!path) return;
    const Checkpoint checkpoint(*path);
    require_same_run(checkpoint, config_);
    restore(checkpoint, job_.optimizer(), [this](const std::string& name, const at::Tensor& whole) {
      return job_.tensor_ranks().part(name, whole);
    });
    if (checkpoint.state().loss_scale && job_.scaler() != nullptr) {
      job_.scaler()->set_state(*checkpoint.state().loss_scale);
    }
    job_.set_steps_done(checkpoint.state().step);
    result_.losses = LossDigest(checkpoint.state().losses);
    resumed_ = true;
    // From elsewhere: this run's own folder has no checkpoint of that step yet.
    const CheckpointWriter own(config_.train.checkpoint, job_.steps_done());
    std::error_code not_there;
    if (fs::equivalent(*path, own.path(), not_there)) saved_at_ = job_.steps_done();
    if (is_first()) {
      std::cerr << "going on from " << path->string() << ", step " << job_.steps_done() << " of "
                << config_.train.steps << "\n";
    }
  }

  /// Ranks may have plans of their own.
  void agree_on_replays() {
    const Group& group = job_.tensor_ranks().group();
    if (session_ == nullptr || group.size() == 1) return;
    at::Tensor flag = at::full({1}, options_.repeats_collectives ? 1 : 0,
                               at::TensorOptions(job_.device()).dtype(at::kInt));
    group.all_reduce(flag, Reduce::kMax);
    compares_replays_ = flag.item<int>() != 0;
  }

  void open_metrics() {
    if (!options_.writes || config_.train.out.empty() || !is_first()) return;
    fs::create_directories(config_.train.out);
    metrics_.emplace(fs::path(config_.train.out) / "metrics.jsonl",
                     resumed_ ? std::optional(job_.steps_done()) : std::nullopt);
  }

  const TrainingStep& one_step() {
    const std::int64_t number = job_.steps_done() + 1;
    if (session_ != nullptr && options_.verify_every > 0 && number % options_.verify_every == 0) {
      session_->verify_next_step();
    }
    if (session_ != nullptr && options_.trace && number == config_.train.steps) {
      session_->trace_next_step();
    }
    if (session_ != nullptr && compares_replays_) {
      require_same_replays(job_.tensor_ranks().group(), session_->plan().get(), job_.device());
    }
    result_.run.steps.push_back(job_.step(session_));
    const TrainingStep& step = result_.run.steps.back();
    result_.losses.add(number, step.loss);
    if (session_ != nullptr && session_->plan() != plan_) {
      plan_ = session_->plan();
      result_.settled = static_cast<int>(result_.run.steps.size());
    }
    const bool keep = number > config_.train.steps - options_.kept;
    result_.run.gradients.push_back(keep ? job_.gradients() : std::vector<at::Tensor>());
    std::optional<double> evaluation;
    if (config_.train.evaluate_every > 0 && number % config_.train.evaluate_every == 0) {
      evaluation = job_.evaluate();
      result_.evaluation = evaluation;
    }
    write_metrics(number, step, evaluation);
    if (options_.writes && config_.train.checkpoint_every > 0 &&
        number % config_.train.checkpoint_every == 0) {
      save();
    }
    return step;
  }

  [[nodiscard]] double tokens_per_second(const TrainingStep& step) const {
    const auto tokens = config_.model.tokens * config_.train.micro_batch_size *
                        config_.train.micro_batches * job_.groups().data.size();
    return static_cast<double>(tokens) / (step.milliseconds / 1e3);
  }

  [[nodiscard]] std::string note_of(const TrainingStep& step) const {
    std::string note = "loss " + with_decimals(step.loss, 4) + ", " +
                       with_decimals(tokens_per_second(step), 0) + " tokens/s, device " +
                       to_string(step.peak);
    if (session_ != nullptr) note += ", host " + to_string(session_->report().host_peak);
    if (result_.evaluation) note += ", evaluation " + with_decimals(*result_.evaluation, 4);
    return note;
  }

  void write_metrics(std::int64_t number, const TrainingStep& step,
                     const std::optional<double>& evaluation) {
    if (!metrics_) return;
    nlohmann::ordered_json line = {{"step", number},
                                   {"loss", step.loss},
                                   {"learning_rate", step.learning_rate},
                                   {"gradient_norm", step.gradient_norm},
                                   {"skipped", step.skipped},
                                   {"milliseconds", step.milliseconds},
                                   {"tokens_per_second", tokens_per_second(step)},
                                   {"device_peak", step.peak.count()}};
    if (step.experts) {
      line["balance_loss"] = step.experts->balance;
      line["z_loss"] = step.experts->z;
    }
    if (session_ != nullptr) line["host_peak"] = session_->report().host_peak.count();
    if (evaluation) line["evaluation"] = *evaluation;
    metrics_->write(line);
  }

  /// All ranks stop after the same step.
  bool should_stop() {
    at::Tensor flag =
        at::full({1}, stop_.received(), at::TensorOptions(job_.device()).dtype(at::kInt));
    everyone_.all_reduce(flag, Reduce::kMax);
    result_.stopped_by = flag.item<int>();
    return result_.stopped_by != 0;
  }

  void save() {
    const CheckpointWriter writer(config_.train.checkpoint, job_.steps_done());
    if (is_first()) writer.begin();
    everyone_.barrier();
    if (is_writer()) write(writer);
    everyone_.barrier();
    if (is_first()) {
      TrainingState state;
      state.step = job_.steps_done();
      state.config = to_toml(config_);
      state.losses = result_.losses.value();
      if (job_.scaler() != nullptr) state.loss_scale = job_.scaler()->state();
      writer.complete(job_.topology().size(Axis::kPipeline) * job_.topology().size(Axis::kExpert),
                      state);
    }
    everyone_.barrier();
    saved_at_ = job_.steps_done();
    result_.checkpoint = writer.path().string();
  }

  /// Without the copies of weights that another rank has.
  void write(const CheckpointWriter& writer) {
    std::set<std::string> names;
    for (const NamedTensor& parameter : job_.own_parameters()) names.insert(parameter.name);
    const auto own = [&](std::vector<NamedTensor> tensors, bool with_suffix) {
      std::erase_if(tensors, [&](const NamedTensor& tensor) {
        const auto dot = with_suffix ? tensor.name.rfind('.') : std::string::npos;
        return !names.contains(tensor.name.substr(0, dot));
      });
      return tensors;
    };
    const TensorRanks& ranks = job_.tensor_ranks();
    const auto weights = ranks.wholes(own(job_.optimizer().parameters(), false));
    const auto state = ranks.wholes(own(job_.optimizer().state(), true));
    if (ranks.group().rank() != 0) return;
    const Coordinates coordinates = job_.topology().coordinates(world_.rank());
    const int part =
        coordinates.pipeline * job_.topology().size(Axis::kExpert) + coordinates.expert;
    writer.write(part, weights, state);
  }

  void say_why() const {
    std::cerr << "ended by signal " << result_.stopped_by << " after step " << job_.steps_done()
              << (result_.checkpoint.empty()
                      ? "; nothing was saved: there is no train.checkpoint"
                      : "; " + result_.checkpoint + " is written, train.resume=latest goes on")
              << "\n";
  }

  World& world_;
  Group everyone_;
  TrainingJob& job_;
  Session* session_;
  const TrainConfig& config_;
  const LoopOptions& options_;
  StopSignal stop_;
  std::optional<MetricsFile> metrics_;
  std::shared_ptr<const Plan> plan_;
  bool resumed_ = false;
  bool compares_replays_ = false;
  std::int64_t saved_at_ = -1;
  LoopResult result_;
};

}  // namespace

LoopResult run_steps(World& world, TrainingJob& job, Session* session, const TrainConfig& config,
                     const LoopOptions& options) {
  return Loop(world, job, session, config, options).run();
}

std::uint64_t parameters_digest(World& world, const TrainingJob& job) {
  std::ostringstream mine;
  for (const NamedTensor& parameter : job.tensor_ranks().wholes(job.parameters())) {
    mine << parameter.name << ' ' << tensor_digest(parameter).digest << '\n';
  }
  std::vector<NamedDigest> all;
  for (const std::string& text : gather_texts(world.everyone(), mine.str(), job.device())) {
    std::istringstream lines(text);
    for (NamedDigest each; lines >> each.name >> each.digest;) all.push_back(each);
  }
  return combined_digest(std::move(all));
}

}  // namespace spillway::app
