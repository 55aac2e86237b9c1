/// The settings of a training run: tables of a TOML file, each key with a default. The keys, their
/// constraints and what they mean are in config_keys.cpp; docs/train.md lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/plan/rules.hpp"

namespace spillway::app {

struct ModelConfig {
  std::string kind = "llama";
  std::int64_t layers = 8;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads.
  std::int64_t ffn = 352;
  std::int64_t tokens = 256;
  std::int64_t vocabulary = 256;
  bool tied = false;
  double dropout = 0;
  std::string dtype = "float32";
  std::int64_t experts = 0;
  std::int64_t chosen_experts = 2;
  std::int64_t expert_ffn = 0;
  std::int64_t shared_expert_ffn = 0;
  std::string moe_layers = "every 2";
  double capacity_factor = 0;
  std::string moe_overlap = "shared";
  std::string router_softmax = "after";
  double aux_loss = 0.01;
  double z_loss = 0;

  /// With the 0 of kv_heads resolved.
  [[nodiscard]] std::int64_t key_heads() const noexcept { return kv_heads == 0 ? heads : kv_heads; }
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string path;
  std::string format = "auto";
  std::string evaluation;
  double held_out = 0.05;
  std::int64_t seed = 0;

  bool operator==(const DataConfig&) const = default;
};

struct RunConfig {
  std::int64_t steps = 20;
  std::int64_t micro_batches = 4;
  std::int64_t micro_batch_size = 1;
  std::int64_t seed = 0;
  std::string device = "best";
  std::string precision = "fp32";
  double clip = 1;
  std::string checkpoint;
  std::int64_t checkpoint_every = 0;
  std::string resume;
  std::string out;
  std::int64_t evaluate_every = 0;
  std::int64_t evaluate_batches = 4;

  bool operator==(const RunConfig&) const = default;
};

struct OptimizerConfig {
  double learning_rate = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  std::int64_t warm_up = 4;
  std::string schedule = "cosine";
  double min_learning_rate = 2e-4;

  bool operator==(const OptimizerConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t pipeline = 1;
  std::int64_t virtual_stages = 1;  ///< The key is "virtual".
  std::int64_t tensor = 1;
  bool sequence_parallel = false;
  std::int64_t data = 1;
  std::int64_t expert = 1;
  std::string schedule = "1f1b";
  std::string segmentation = "uniform";
  std::string profile;
  std::int64_t recompute_interval = 0;
  bool recompute_offload = false;
  bool recompute_partition = false;
  double timeout = 120;

  bool operator==(const ParallelConfig&) const = default;
};

/// The tables of a rules file that stand under [memory]: [[memory.rule]], [memory.limits], ...
struct InlineRules {
  Rules rules;       ///< Their locations are those in the config's file.
  std::string text;  ///< The same as TOML, under [memory].

  bool operator==(const InlineRules& other) const { return text == other.text; }
};

struct MemoryConfig {
  std::string budget;  ///< As `--budget` takes it, or "auto"; empty: none.
  std::string rules;   ///< A file; empty: none.
  std::string plan;    ///< A file; empty: none.
  bool strict = false;
  std::optional<InlineRules> inline_rules;

  bool operator==(const MemoryConfig&) const = default;
};

/// The default is a small Llama-shaped model that trains in seconds on a CPU.
struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  RunConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  MemoryConfig memory;

  bool operator==(const TrainConfig&) const = default;
};

/// Reads the text over the defaults, then `overrides` ("model.layers=4", values as in TOML, texts
/// also without quotes) over that, the last one of a key wins, and checks what keys mean together.
/// Errors: ConfigError "[config] file:line:column: key ..." or "[config] --set key=value: ...",
/// with the nearest valid word; for keys that do not fit together, with the arithmetic.
[[nodiscard]] TrainConfig parse_config(std::string_view text, std::string_view file_name,
                                       const std::vector<std::string>& overrides = {});

/// The file's config, or the defaults if the path is empty.
/// Errors: IoError if the file cannot be read, else as parse_config().
[[nodiscard]] TrainConfig load_config(const std::filesystem::path& path,
                                      const std::vector<std::string>& overrides = {});

/// Every key with a comment line that says what it means, and the inline rules; parse_config()
/// reads an equal config from it.
[[nodiscard]] std::string to_toml(const TrainConfig& config);

/// The rules of the file or of the tables; nothing if there are neither.
/// Errors: as load_rules().
[[nodiscard]] std::optional<Rules> rules_of(const MemoryConfig& memory);

}  // namespace spillway::app
