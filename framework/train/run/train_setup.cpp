#include "train/run/train_setup.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "spillway/core/error.hpp"
#include "train/model/device_memory.hpp"
#include "util/text/budget_text.hpp"

namespace spillway::app {
namespace {

constexpr const char* kDefaultRules = R"([[rule]]
name = "the last layer is used at once"
layers = -1
action = "keep"

[[rule]]
name = "everything else"
action = "offload"
)";

Budget budget_of(const std::string& text) {
  if (text == "auto") return Budget::automatic();
  const BudgetText budget = parse_budget(text);
  if (const auto* bytes = std::get_if<Bytes>(&budget)) return *bytes;
  return Budget::share(std::get<Share>(budget).value);
}

/// Of the machine this rank runs on, as the launchers say; 0 without one.
int local_rank() {
  for (const char* name :
       {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return 0;
}

int local_ranks(int all) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return all;
}

Rules rules_for(const TrainConfig& config) {
  if (auto rules = rules_of(config.memory)) return *rules;
  if (config.parallel.recompute_interval > 0) {
    PaddleSettings settings;
    settings.recompute_interval = static_cast<int>(config.parallel.recompute_interval);
    settings.recompute_offload = config.parallel.recompute_offload;
    settings.recompute_partition = config.parallel.recompute_partition;
    Rules rules;
    rules.settings = settings;
    return rules;
  }
  if (!config.memory.plan.empty() || !config.memory.budget.empty()) return {};
  return parse_rules(kDefaultRules, "spillway train's own rules");
}

/// Ranks that share matrices repeat collectives together or not at all.
void require_one_order(const TrainConfig& config, const Rules& rules) {
  if (config.parallel.tensor == 1 || config.memory.budget.empty()) return;
  if (!rules.recompute_collectives) return;
  throw ConfigError(
      "config", "memory.budget = \"" + config.memory.budget +
                    "\", parallel.tensor = " + std::to_string(config.parallel.tensor) +
                    " and the rules' recompute_collectives = true are impossible together: each "
                    "rank plans by its own times, so that they would repeat collectives in "
                    "different orders; leave recompute_collectives out");
}

}  // namespace

std::string with_rank(std::string path, int rank) {
  const std::string word = "{rank}";
  for (auto at = path.find(word); at != std::string::npos; at = path.find(word)) {
    path.replace(at, word.size(), std::to_string(rank));
  }
  return path;
}

Placement placement_of(const TrainConfig& config, int ranks) {
  const DeviceChoice choice = parse_device(config.train.device);
  if (choice.kind == DeviceChoice::Kind::kHost) return Placement::kHost;
  const auto gpus = static_cast<int>(gpu_system().gpus.size());
  if (gpus >= local_ranks(ranks)) return Placement::kOwnGpu;
  return choice.kind == DeviceChoice::Kind::kGpu ? Placement::kSharedGpu : Placement::kHost;
}

WorldOptions world_options(const TrainConfig& config) {
  WorldOptions options;
  options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(config.parallel.timeout * 1000));
  options.silence = options.timeout;
  return options;
}

std::unique_ptr<World> open_world(const TrainConfig& config) {
  auto world = detect_world(world_options(config));
  const int ranks = world->size();
  if (ranks == 1 || placement_of(config, ranks) != Placement::kOwnGpu) return world;
  return make_nccl_world(std::move(world), world_options(config));
}

at::Device device_of(const TrainConfig& config, const World& world) {
  if (world.size() == 1) return torch_device(parse_device(config.train.device));
  if (placement_of(config, world.size()) == Placement::kHost) {
    return torch_device({DeviceChoice::Kind::kHost, 0});
  }
  const auto gpus = std::max(1, static_cast<int>(gpu_system().gpus.size()));
  return torch_device({DeviceChoice::Kind::kGpu, local_rank() % gpus});
}

SessionOptions session_options(const TrainConfig& config, at::Device device, int rank) {
  SessionOptions options;
  options.device = device;
  options.rules = rules_for(config);
  require_one_order(config, options.rules);
  if (!config.memory.plan.empty()) options.plan = load_plan(with_rank(config.memory.plan, rank));
  if (!config.memory.budget.empty()) {
    options.budget = budget_of(config.memory.budget);
    options.strict = config.memory.strict;
    options.plan_in_background = false;  // So that few steps are enough to see what it does.
  }
  return options;
}

}  // namespace spillway::app
