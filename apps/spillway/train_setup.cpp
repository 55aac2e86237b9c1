#include "train_setup.hpp"

#include <chrono>
#include <cstdlib>

#include "common/budget_text.hpp"
#include "training/device_memory.hpp"

namespace spillway::app {
namespace {

constexpr const char* kDefaultRules = R"([[rule]]
name = "the last layer is wanted at once"
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

bool wants_gpus(const TrainConfig& config, int ranks) {
  const DeviceChoice choice = parse_device(config.train.device);
  if (choice.kind == DeviceChoice::Kind::kHost) return false;
  if (choice.kind == DeviceChoice::Kind::kGpu) return true;
  return static_cast<int>(gpu_system().gpus.size()) >= local_ranks(ranks);
}

Rules rules_for(const TrainConfig& config) {
  if (auto rules = rules_of(config.memory)) return *rules;
  if (config.parallel.recompute_interval > 0) {
    PaddleWords words;
    words.recompute_interval = static_cast<int>(config.parallel.recompute_interval);
    words.recompute_offload = config.parallel.recompute_offload;
    words.recompute_partition = config.parallel.recompute_partition;
    Rules rules;
    rules.words = words;
    return rules;
  }
  if (!config.memory.plan.empty() || !config.memory.budget.empty()) return {};
  return parse_rules(kDefaultRules, "spillway train's own rules");
}

}  // namespace

std::string with_rank(std::string path, int rank) {
  const std::string word = "{rank}";
  for (auto at = path.find(word); at != std::string::npos; at = path.find(word)) {
    path.replace(at, word.size(), std::to_string(rank));
  }
  return path;
}

std::unique_ptr<World> open_world(const TrainConfig& config) {
  WorldOptions options;
  options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(config.parallel.timeout * 1000));
  options.silence = options.timeout;
  auto world = detect_world(options);
  const int ranks = world->size();
  if (ranks == 1 || !wants_gpus(config, ranks)) return world;
  return make_nccl_world(std::move(world), options);
}

at::Device device_of(const TrainConfig& config, const World& world) {
  if (world.size() == 1) return torch_device(parse_device(config.train.device));
  if (!wants_gpus(config, world.size())) {
    return torch_device({DeviceChoice::Kind::kHost, 0});
  }
  return torch_device({DeviceChoice::Kind::kGpu, local_rank()});
}

SessionOptions session_options(const TrainConfig& config, at::Device device, int rank) {
  SessionOptions options;
  options.device = device;
  const ModelConfig& model = config.model;
  const auto values = static_cast<std::uint64_t>(config.train.micro_batch_size * model.tokens *
                                                 (8 * model.hidden + 4 * model.ffn));
  const std::uint64_t bytes = config.train.precision == "fp32" ? 4 : 2;
  options.in_flight = options.ahead = Bytes(values * bytes / 4);
  options.rules = rules_for(config);
  if (!config.memory.plan.empty()) options.plan = load_plan(with_rank(config.memory.plan, rank));
  if (!config.memory.budget.empty()) {
    options.budget = budget_of(config.memory.budget);
    options.plan_in_background = false;  // So that few steps are enough to see what it does.
  }
  return options;
}

}  // namespace spillway::app
