#include "train/run/train_run.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include <ATen/ATen.h>

#include "spillway/memory/host_system.hpp"
#include "train/run/rank_table.hpp"
#include "train/run/train_figures.hpp"
#include "train/run/train_loop.hpp"
#include "train/run/train_setup.hpp"
#include "util/files.hpp"

namespace spillway::app {
namespace {

/// How many of the last steps' gradients there is room for, in a quarter of the free host memory
/// for both runs of all ranks.
int steps_to_keep(const TrainingJob& job, std::int64_t steps, int ranks) {
  std::uint64_t bytes = 1;
  for (const at::Tensor& parameter : job.model().parameters()) bytes += parameter.nbytes();
  const std::uint64_t all = 2 * bytes * static_cast<std::uint64_t>(ranks);
  const std::uint64_t room = available_host_memory().count() / 4 / all;
  return static_cast<int>(std::clamp<std::uint64_t>(room, 1, static_cast<std::uint64_t>(steps)));
}

/// The comparison of all ranks: what they compared and found, and the first difference.
Comparison over_all_ranks(const Group& everyone, const Comparison& mine, at::Device device) {
  const nlohmann::ordered_json text = {
      {"gradients", mine.gradients}, {"different", mine.different}, {"first", mine.first}};
  Comparison all;
  all.losses = mine.losses;
  int rank = 0;
  for (const auto& each : gather_figures(everyone, text, device)) {
    all.gradients += each["gradients"].get<int>();
    all.different += each["different"].get<int>();
    const auto first = each["first"].get<std::string>();
    if (all.first.empty() && !first.empty()) {
      all.first = everyone.size() == 1 ? first : first + " on rank " + std::to_string(rank);
    }
    ++rank;
  }
  return all;
}

/// One rank's folder: that of the run, or one of its own below it.
std::filesystem::path folder_of(const TrainConfig& config, const World& world) {
  const std::filesystem::path out(config.train.out);
  return world.size() == 1 ? out : out / ("rank-" + std::to_string(world.rank()));
}

/// Training on one rank of the world.
class TrainCommand {
 public:
  TrainCommand(const TrainOptions& options, const TrainConfig& config, World& world)
      : options_(options), config_(config), world_(world), device_(device_of(config, world)) {}

  int run() {
    // Before anything trains: files that are wrong are said at once.
    LoopOptions loop;
    if (!options_.baseline) {
      SessionOptions given = session_options(config_, device_, world_.rank());
      loop.repeats_collectives =
          given.rules.recompute_collectives || (given.plan && given.plan->recompute_collectives);
      session_.emplace(std::move(given));
    }
    std::optional<DeterministicAlgorithms> deterministic;
    if (options_.compare || options_.digest) deterministic.emplace();
    loop.verify_every = options_.verify_every;
    loop.trace = !options_.trace.empty();
    if (options_.compare) {
      TrainingJob job(config_, world_, device_);
      loop.kept = steps_to_keep(job, config_.train.steps, world_.size());
      loop.title = "without Spillway";
      loop.writes = false;
      figures_.without = run_steps(world_, job, nullptr, config_, loop).run;
      loop.writes = true;
    }
    TrainingJob job(config_, world_, device_);
    if (session_) {
      session_->register_model(job.model());
      if (job.shards() != nullptr) session_->set_shard_group(job.shards());
    }
    loop.title = session_ ? "with Spillway   " : "without Spillway";
    LoopResult result = run_steps(world_, job, session_ ? &*session_ : nullptr, config_, loop);
    if (result.run.steps.empty()) {
      if (is_first()) std::cout << "nothing to do: " << config_.train.steps << " steps are done\n";
    } else {
      report(job, std::move(result.run), result.settled);
    }
    if (options_.digest) {
      const std::uint64_t parameters = parameters_digest(world_, job);
      if (is_first()) std::cout << digest_line(parameters, result.losses.value()) << "\n";
    }
    if (is_first() && !result.checkpoint.empty()) {
      std::cout << "checkpoint: " << result.checkpoint << "\n";
    }
    return figures_.comparison && !figures_.comparison->equal() ? 1 : 0;
  }

 private:
  [[nodiscard]] bool is_first() const { return world_.rank() == 0; }

  void report(const TrainingJob& job, TrainingRun run, int settled) {
    figures_.model = job.describe();
    figures_.with = std::move(run);
    figures_.settled = static_cast<std::size_t>(settled);
    // The first step under a new plan also verifies what it recomputes.
    figures_.warm_up = std::max(figures_.warm_up, static_cast<std::size_t>(settled) + 1);
    figures_.managed = session_.has_value();
    if (session_) {
      figures_.plan = session_->plan();
      figures_.report = session_->report();
      figures_.report.rank = world_.rank();
      figures_.reduction = reduction(job);
    }
    const Group everyone = world_.everyone();
    if (figures_.without) {
      const Comparison mine = compare(*figures_.without, figures_.with, job.parameter_names());
      figures_.comparison = over_all_ranks(everyone, mine, device_);
    }
    std::vector<nlohmann::ordered_json> ranks;
    if (session_) {
      ranks = gather_figures(everyone, rank_figures(world_.rank(), job, figures_), device_);
    }
    if (is_first()) {
      std::cout << figures_.model << "\n" << to_text(figures_);
      if (world_.size() > 1 && session_) {
        std::cout << "all ranks (the table above is rank 0's):\n" << rank_table(ranks);
      }
    }
    if (!config_.train.out.empty()) write_all(ranks);
    if (!options_.trace.empty() && session_) write_trace();
  }

  [[nodiscard]] std::optional<PeakReduction> reduction(const TrainingJob& job) const {
    const std::shared_ptr<const Profile> profile = session_->profile();
    if (profile == nullptr || figures_.plan == nullptr) return std::nullopt;
    SimulateOptions options;
    // A chunk that saves nothing, such as an embedding alone, is in no profile.
    options.schedule = known_part(job.passes(), *profile);
    if (job.shards() != nullptr) options.shard.ranks = job.shards()->size();
    return peak_reduction(*profile, *figures_.plan, options);
  }

  void write_trace() const {
    const std::string file = with_rank(options_.trace, world_.rank());
    if (file == options_.trace && !is_first()) return;  // One file is the first rank's.
    const Trace trace = session_->trace();
    write_output(file, to_chrome_json(trace));
    if (!is_first()) return;
    std::cout << file << " is written, with the last step as "
              << (trace.processes.size() > 1 ? "predicted and as measured" : "measured")
              << "; open it at https://ui.perfetto.dev\n";
  }

  void write_all(const std::vector<nlohmann::ordered_json>& ranks) {
    const std::filesystem::path path = folder_of(config_, world_);
    std::filesystem::create_directories(path);
    auto json = to_json(figures_);
    if (session_) json["ranks"] = ranks;
    write_output(path / "train.json", json.dump(2) + "\n");
    write_output(path / "report.txt",
                 to_text(figures_) + "\n" + (session_ ? figures_.report.to_text() : ""));
    std::string written = "metrics.jsonl, train.json, report.txt";
    if (session_) {
      write_output(path / "report.json", figures_.report.to_json() + "\n");
      written += ", report.json";
      if (session_->plan() != nullptr) {
        save_plan(*session_->plan(), path / "plan.json");
        written += ", plan.json";
      }
      if (session_->profile() != nullptr) {
        save_profile(*session_->profile(), path / "profile.json");
        written += ", profile.json";
      }
    }
    if (is_first()) {
      std::cout << "written to " << config_.train.out
                << (world_.size() == 1 ? "" : " and its folder rank-N of each rank") << ": "
                << written << "\n";
    }
  }

  const TrainOptions& options_;
  const TrainConfig& config_;
  World& world_;
  at::Device device_;
  std::optional<Session> session_;
  TrainFigures figures_;
};

}  // namespace

int run_train(const TrainOptions& options, const TrainConfig& config, World& world) {
  int code = 0;
  run_guarded(world, [&] { code = TrainCommand(options, config, world).run(); });
  return code;
}

}  // namespace spillway::app
