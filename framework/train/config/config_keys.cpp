#include "train/config/config_keys.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "devices/devices.hpp"
#include "spillway/plan/layer_choice.hpp"
#include "train/config/segmentation_text.hpp"
#include "util/text/budget_text.hpp"

namespace spillway::app {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMillion = 1'000'000;
constexpr bool kResults = true;

/// The member of the one of the config's tables that has it.
template <typename Table, typename T>
Member<T> of(T Table::*member) {
  return [member](TrainConfig& config) -> T& {
    auto& [model, data, train, optimizer, parallel, memory] = config;
    return std::get<Table&>(std::tie(model, data, train, optimizer, parallel, memory)).*member;
  };
}

void check_budget(const std::string& text) {
  if (text != "auto") (void)parse_budget(text);
}

void check_device(const std::string& text) { (void)parse_device(text); }

/// The number of layers is not known here: whether they are there is seen when all keys are.
void check_moe_layers(const std::string& text) { (void)is_chosen_layer(text, 0, 1); }

std::vector<ConfigKey> model_keys() {
  return {
      {"model", "kind", WordKey{of(&ModelConfig::kind), {"llama", "gpt"}},
       "Llama-shaped (RMS norm, rotary positions, SwiGLU) or GPT (learned positions, GELU)",
       kResults},
      {"model", "layers", WholeKey{of(&ModelConfig::layers), 1, kMillion}, "Transformer layers",
       kResults},
      {"model", "hidden", WholeKey{of(&ModelConfig::hidden), 1, kMillion}, "Width of a layer",
       kResults},
      {"model", "heads", WholeKey{of(&ModelConfig::heads), 1, kMillion},
       "Attention heads; they divide hidden", kResults},
      {"model", "kv_heads", WholeKey{of(&ModelConfig::kv_heads), 0, kMillion},
       "Heads of keys and values; they divide heads; 0: as many as heads", kResults},
      {"model", "ffn", WholeKey{of(&ModelConfig::ffn), 1, 100 * kMillion}, "Width within the MLP",
       kResults},
      {"model", "tokens", WholeKey{of(&ModelConfig::tokens), 1, 1000 * kMillion},
       "Length of a sequence", kResults},
      {"model", "vocabulary", WholeKey{of(&ModelConfig::vocabulary), 2, 1000 * kMillion},
       "Different tokens; bytes of text need 256", kResults},
      {"model", "tied", FlagKey{of(&ModelConfig::tied)},
       "The head uses the weights of the embedding", kResults},
      {"model", "dropout", NumberKey{of(&ModelConfig::dropout), 0, 0.99},
       "Share of values that dropout takes away", kResults},
      {"model", "dtype", WordKey{of(&ModelConfig::dtype), {"float32", "bfloat16", "float64"}},
       "Type of the weights", kResults},
      {"model", "experts", WholeKey{of(&ModelConfig::experts), 0, kMillion},
       "Experts in each layer of moe_layers, instead of the MLP; 0: none (docs/moe.md)", kResults},
      {"model", "chosen_experts", WholeKey{of(&ModelConfig::chosen_experts), 1, kMillion},
       "How many of them see a token", kResults},
      {"model", "expert_ffn", WholeKey{of(&ModelConfig::expert_ffn), 0, 100 * kMillion},
       "Width within an expert; 0: ffn", kResults},
      {"model", "shared_expert_ffn",
       WholeKey{of(&ModelConfig::shared_expert_ffn), 0, 100 * kMillion},
       "Width of an expert that sees every token besides; 0: none", kResults},
      {"model", "moe_layers",
       TextKey{of(&ModelConfig::moe_layers), "every N, or layers 1,3,5 or 1..-1", check_moe_layers},
       "Which layers have experts; every 2: the second, the fourth, ...", kResults},
      {"model", "capacity_factor", NumberKey{of(&ModelConfig::capacity_factor), 0, 1e6},
       "Tokens an expert takes, times the even number; the rest are dropped; 0: as many as come",
       kResults},
      {"model", "moe_overlap", WordKey{of(&ModelConfig::moe_overlap), {"none", "shared", "halves"}},
       "Computed while rows travel: nothing, the shared expert, or also the tokens' other half",
       kResults},
      {"model", "router_softmax", WordKey{of(&ModelConfig::router_softmax), {"after", "before"}},
       "Weights of experts: over the chosen ones, or over all before they are chosen", kResults},
      {"model", "aux_loss", NumberKey{of(&ModelConfig::aux_loss), 0, 1e6},
       "Coefficient of the loss that keeps experts evenly loaded", kResults},
      {"model", "z_loss", NumberKey{of(&ModelConfig::z_loss), 0, 1e6},
       "Coefficient of the loss that keeps the router's values small", kResults},
  };
}

std::vector<ConfigKey> data_keys() {
  return {
      {"data", "path", TextKey{of(&DataConfig::path), "a file"},
       "What to learn; empty: a made-up text", kResults},
      {"data", "format", WordKey{of(&DataConfig::format), {"auto", "text", "bin", "generated"}},
       "text: bytes are tokens; bin: tokens of llm.c or nanoGPT; auto: bin if the file ends so",
       kResults},
      {"data", "evaluation", TextKey{of(&DataConfig::evaluation), "a file"},
       "What to evaluate on, in the same format; empty: what is held out", kResults},
      {"data", "held_out", NumberKey{of(&DataConfig::held_out), 0, 0.9},
       "Share of the file's end that is evaluated on and not learnt, if there is no other",
       kResults},
      {"data", "seed", WholeKey{of(&DataConfig::seed), 0, kMost},
       "Of the order of samples, and of the made-up text", kResults},
  };
}

std::vector<ConfigKey> train_keys() {
  return {
      {"train", "steps", WholeKey{of(&RunConfig::steps), 1, kMost},
       "Optimizer steps, from the start of training"},
      {"train", "micro_batches", WholeKey{of(&RunConfig::micro_batches), 1, kMillion},
       "Micro-batches of a step on each data-parallel rank"},
      {"train", "micro_batch_size", WholeKey{of(&RunConfig::micro_batch_size), 1, kMillion},
       "Sequences of a micro-batch", kResults},
      {"train", "seed", WholeKey{of(&RunConfig::seed), 0, kMost}, "Of weights and dropout",
       kResults},
      {"train", "device",
       TextKey{of(&RunConfig::device), "best, host, cuda or cuda:N", check_device},
       "best: a GPU if there is one"},
      {"train", "precision", WordKey{of(&RunConfig::precision), {"fp32", "bf16", "fp16"}},
       "bf16 and fp16: autocast over fp32 weights; fp16 with loss scaling", kResults},
      {"train", "clip", NumberKey{of(&RunConfig::clip), 0, 1e30},
       "The most that the norm of all gradients may be; 0: not clipped", kResults},
      {"train", "checkpoint", TextKey{of(&RunConfig::checkpoint), "a folder"},
       "Where checkpoints go, one folder a step; empty: none are written"},
      {"train", "checkpoint_every", WholeKey{of(&RunConfig::checkpoint_every), 0, kMost},
       "Steps between checkpoints; 0: only after the last step"},
      {"train", "resume", TextKey{of(&RunConfig::resume), "latest or a folder"},
       "latest: the newest complete one in train.checkpoint, if any; empty: start from step 0"},
      {"train", "out", TextKey{of(&RunConfig::out), "a folder"},
       "Where metrics.jsonl and reports go; empty: nowhere"},
      {"train", "evaluate_every", WholeKey{of(&RunConfig::evaluate_every), 0, kMost},
       "Steps between evaluations; 0: none"},
      {"train", "evaluate_batches", WholeKey{of(&RunConfig::evaluate_batches), 1, kMillion},
       "Micro-batches of an evaluation"},
  };
}

std::vector<ConfigKey> optimizer_keys() {
  return {
      {"optimizer", "learning_rate", NumberKey{of(&OptimizerConfig::learning_rate), 0, 1e6},
       "Of AdamW, after the warm-up", kResults},
      {"optimizer", "beta1", NumberKey{of(&OptimizerConfig::beta1), 0, 0.999999},
       "Decay of the mean of gradients", kResults},
      {"optimizer", "beta2", NumberKey{of(&OptimizerConfig::beta2), 0, 0.999999999},
       "Decay of the mean of their squares", kResults},
      {"optimizer", "epsilon", NumberKey{of(&OptimizerConfig::epsilon), 0, 1},
       "Added to the root of that mean", kResults},
      {"optimizer", "weight_decay", NumberKey{of(&OptimizerConfig::weight_decay), 0, 1e6},
       "Of matrices; vectors (norms, biases) do not decay", kResults},
      {"optimizer", "warm_up", WholeKey{of(&OptimizerConfig::warm_up), 0, kMost},
       "Steps in which the learning rate rises from 0", kResults},
      {"optimizer", "schedule", WordKey{of(&OptimizerConfig::schedule), {"cosine", "constant"}},
       "cosine: down to min_learning_rate at the last step", kResults},
      {"optimizer", "min_learning_rate", NumberKey{of(&OptimizerConfig::min_learning_rate), 0, 1e6},
       "Where cosine ends", kResults},
  };
}

std::vector<ConfigKey> parallel_keys() {
  return {
      {"parallel", "pipeline", WholeKey{of(&ParallelConfig::pipeline), 1, kMillion},
       "Stages that the layers are spread over"},
      {"parallel", "virtual", WholeKey{of(&ParallelConfig::virtual_stages), 1, kMillion},
       "Chunks of layers on each stage; above 1: interleaved 1F1B"},
      {"parallel", "tensor", WholeKey{of(&ParallelConfig::tensor), 1, kMillion},
       "Ranks that share each matrix; they divide heads, kv_heads, every ffn and vocabulary"},
      {"parallel", "sequence_parallel", FlagKey{of(&ParallelConfig::sequence_parallel)},
       "Between matrices those ranks share the tokens too; they divide tokens"},
      {"parallel", "data", WholeKey{of(&ParallelConfig::data), 1, kMillion},
       "Copies of the model, each on its own micro-batches"},
      {"parallel", "expert", WholeKey{of(&ParallelConfig::expert), 1, kMillion},
       "Ranks that experts are spread over, each with data of its own"},
      {"parallel", "schedule", WordKey{of(&ParallelConfig::schedule), {"1f1b", "gpipe"}},
       "The order of forward and backward passes"},
      {"parallel", "segmentation",
       TextKey{of(&ParallelConfig::segmentation),
               "uniform, memory, time, layer:NAME or bounds 0,3,6", check_segmentation},
       "How layers are split into stages; bounds count the transformer layers"},
      {"parallel", "profile", TextKey{of(&ParallelConfig::profile), "a file"},
       "What `spillway profile` wrote of the whole model, for segmentation by memory or time"},
      {"parallel", "recompute_interval",
       WholeKey{of(&ParallelConfig::recompute_interval), 0, kMillion},
       "Groups of so many layers are recomputed from their inputs; 0: none"},
      {"parallel", "recompute_offload", FlagKey{of(&ParallelConfig::recompute_offload)},
       "Those inputs are offloaded"},
      {"parallel", "recompute_partition", FlagKey{of(&ParallelConfig::recompute_partition)},
       "Each tensor-parallel rank holds a part of those inputs"},
      {"parallel", "timeout", NumberKey{of(&ParallelConfig::timeout), 1e-3, 1e6},
       "Seconds after which a rank that does not answer ends the job"},
  };
}

std::vector<ConfigKey> memory_keys() {
  return {
      {"memory", "budget", TextKey{of(&MemoryConfig::budget), "8GiB, 33% or auto", check_budget},
       "The most device memory of a step, planned for; empty: none"},
      {"memory", "rules", TextKey{of(&MemoryConfig::rules), "a file"},
       "Rules (docs/rules.md); or their tables here: [[memory.rule]], [memory.limits], ..."},
      {"memory", "plan", TextKey{of(&MemoryConfig::plan), "a file"},
       "A plan made earlier; wins over rules"},
      {"memory", "strict", FlagKey{of(&MemoryConfig::strict)},
       "End the run whenever no plan fits; false: only before the first plan"},
  };
}

std::vector<ConfigKey> all_keys() {
  std::vector<ConfigKey> all;
  for (const auto& make :
       {model_keys, data_keys, train_keys, optimizer_keys, parallel_keys, memory_keys}) {
    for (ConfigKey& key : make()) all.push_back(std::move(key));
  }
  return all;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> kKeys = all_keys();
  return kKeys;
}

const std::vector<std::string>& config_tables() {
  static const std::vector<std::string> kTables = [] {
    std::vector<std::string> tables;
    for (const ConfigKey& key : config_keys()) {
      if (tables.empty() || tables.back() != key.table) tables.push_back(key.table);
    }
    return tables;
  }();
  return kTables;
}

const ConfigKey* find_key(const std::string& path) {
  const auto& keys = config_keys();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const ConfigKey& key) { return key.path() == path; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace spillway::app
