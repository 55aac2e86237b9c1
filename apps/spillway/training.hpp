/// What `spillway train` and `spillway profile` do. train_linked.cpp and profile_linked.cpp are
/// built where spillway::torch is there, training_absent.cpp elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "common/devices.hpp"

namespace spillway::app {

/// The model that both commands train.
struct ModelOptions {
  int layers = 4;
  std::int64_t hidden = 256;
  std::int64_t heads = 8;
  std::optional<std::int64_t> kv_heads;  ///< As many as heads.
  std::int64_t ffn = 704;
  std::int64_t tokens = 512;
  std::int64_t vocabulary = 2048;
  double dropout = 0;
  std::uint64_t seed = 0;
  std::string dtype;  ///< "bfloat16" on a GPU, "float32" on the CPU.
  DeviceChoice device;
};

struct TrainOptions {
  ModelOptions model;
  int steps = 12;
  std::string budget;  ///< "8GiB", "33%", "auto"; empty: by plan or rules.
  std::string rules;
  std::string plan;
  bool compare = false;
  int verify_every = 0;  ///< 0: only what the session verifies by itself.
  std::string out;
  std::string trace;  ///< Where what the last step did goes; empty: it is not traced.
};

struct ProfileOptions {
  ModelOptions model;
  std::string out = "profile.json";
};

void add_model_options(CLI::App& command, ModelOptions& options);

/// Both give the exit code.
/// Errors: InvalidArgument where this program was built without torch.
[[nodiscard]] int run_train(const TrainOptions& options);
[[nodiscard]] int run_profile(const ProfileOptions& options);

}  // namespace spillway::app
