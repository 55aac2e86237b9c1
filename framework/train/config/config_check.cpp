#include "train/config/config_check.hpp"

#include <utility>
#include <vector>

#include "spillway/core/error.hpp"
#include "train/config/config_keys.hpp"
#include "train/config/moe_layers.hpp"
#include "train/config/segmentation_text.hpp"

namespace spillway::app {
namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

class Check {
 public:
  Check(const TrainConfig& config, const ConfigLocations& locations)
      : config_(config), locations_(locations) {}

  void model() const {
    const ModelConfig& model = config_.model;
    if (model.hidden % model.heads != 0) {
      refuse({"model.heads", "model.hidden"},
             "heads divide hidden: " + division(model.hidden, model.heads));
    }
    if (model.heads % model.key_heads() != 0) {
      refuse({"model.kv_heads", "model.heads"},
             "kv_heads divide heads: " + division(model.heads, model.key_heads()));
    }
    const std::int64_t width = model.hidden / model.heads;
    if (model.kind == "llama" && width % 2 != 0) {
      refuse({"model.heads", "model.hidden"},
             "rotary positions turn pairs of values, so a head has an even width: " +
                 text(model.hidden) + " / " + text(model.heads) + " = " + text(width));
    }
    experts();
    if (model.kind == "gpt" && model.key_heads() != model.heads) {
      refuse({"model.kv_heads", "model.kind"},
             "gpt has as many heads of keys and values as heads; set kv_heads to 0");
    }
  }

  void experts() const {
    const ModelConfig& model = config_.model;
    if (model.experts == 0) {
      if (config_.parallel.expert > 1) {
        refuse({"parallel.expert", "model.experts"}, "there are no experts to spread over ranks");
      }
      return;
    }
    if (model.chosen_experts > model.experts) {
      refuse({"model.chosen_experts", "model.experts"}, "a token sees each expert once at most");
    }
    if (model.experts % config_.parallel.expert != 0) {
      refuse({"model.experts", "parallel.expert"},
             "every rank has equally many experts: " +
                 division(model.experts, config_.parallel.expert));
    }
    if (moe_layers(model) == 0) {
      refuse({"model.moe_layers", "model.layers"},
             "none of the layers 0 to " + text(model.layers - 1) + " would have experts");
    }
  }

  void data() const {
    const DataConfig& data = config_.data;
    const bool needs_file = data.format == "text" || data.format == "bin";
    if (data.path.empty() && needs_file) {
      refuse({"data.format"}, "it says how data.path is written, which is empty; give a file");
    }
    if (data.path.empty() && !data.evaluation.empty()) {
      refuse({"data.evaluation"}, "the text to learn is made up, so no file is like it; empty it");
    }
    if (!data.path.empty() && data.format == "generated") {
      refuse({"data.path", "data.format"}, "a generated text has no file; leave one of them out");
    }
  }

  void train() const {
    const RunConfig& train = config_.train;
    if (train.checkpoint.empty() && train.checkpoint_every > 0) {
      refuse({"train.checkpoint_every"}, "train.checkpoint, the folder to write to, is empty");
    }
    if (train.checkpoint.empty() && train.resume == "latest") {
      refuse({"train.resume"}, "train.checkpoint, the folder to look in, is empty");
    }
    if (config_.optimizer.min_learning_rate > config_.optimizer.learning_rate) {
      refuse({"optimizer.min_learning_rate", "optimizer.learning_rate"},
             "the learning rate would rise to its minimum");
    }
  }

  void parallel() const {
    const ParallelConfig& parallel = config_.parallel;
    tensor();
    if (parallel.virtual_stages > 1 && parallel.schedule == "gpipe") {
      refuse({"parallel.virtual", "parallel.schedule"},
             "GPipe has one chunk on each stage; use 1f1b, or virtual = 1");
    }
    const std::int64_t chunks = parallel.pipeline * parallel.virtual_stages;
    if (config_.model.layers < chunks) {
      refuse({"parallel.pipeline", "parallel.virtual", "model.layers"},
             "every chunk has a layer: " + text(parallel.pipeline) + " x " +
                 text(parallel.virtual_stages) + " = " + text(chunks) + " chunks, but " +
                 text(config_.model.layers) + " layers");
    }
    const std::vector<int> bounds = parse_bounds(parallel.segmentation);
    if (!bounds.empty() && static_cast<std::int64_t>(bounds.size()) != chunks + 1) {
      refuse({"parallel.segmentation", "parallel.pipeline", "parallel.virtual"},
             text(parallel.pipeline) + " x " + text(parallel.virtual_stages) + " = " +
                 text(chunks) + " chunks have " + text(chunks + 1) + " bounds, found " +
                 std::to_string(bounds.size()));
    }
    if (!bounds.empty() && bounds.back() != config_.model.layers) {
      refuse({"parallel.segmentation", "model.layers"},
             "the last bound is the number of layers: " + text(bounds.back()) + " is not " +
                 text(config_.model.layers));
    }
    const bool by_profile = parallel.segmentation == "memory" || parallel.segmentation == "time";
    if (by_profile && parallel.profile.empty()) {
      refuse({"parallel.segmentation"},
             "it is known from a profile of the whole model; make one with `spillway profile`, and "
             "name it in parallel.profile");
    }
    if (parallel.recompute_offload && parallel.recompute_interval == 0) {
      refuse({"parallel.recompute_offload", "parallel.recompute_interval"},
             "nothing is recomputed, so there are no inputs to offload");
    }
    if (parallel.recompute_partition && parallel.recompute_interval == 0) {
      refuse({"parallel.recompute_partition", "parallel.recompute_interval"},
             "nothing is recomputed, so there are no inputs to shard");
    }
    if (parallel.recompute_partition && parallel.sequence_parallel) {
      refuse(
          {"parallel.recompute_partition", "parallel.sequence_parallel"},
          "each rank has another part of the sequence, so the input of a layer is not equal on the "
          "ranks and cannot be sharded over them");
    }
  }

  void tensor() const {
    const std::int64_t ranks = config_.parallel.tensor;
    const ModelConfig& model = config_.model;
    for (const auto& [key, number] :
         {std::pair<const char*, std::int64_t>{"model.heads", model.heads},
          {"model.kv_heads", model.key_heads()},
          {"model.ffn", model.ffn},
          {"model.expert_ffn", model.expert_ffn},
          {"model.shared_expert_ffn", model.shared_expert_ffn},
          {"model.vocabulary", model.vocabulary}}) {
      if (number % ranks == 0) continue;
      refuse({"parallel.tensor", key}, "each rank has an equal part: " + division(number, ranks) +
                                           "; the next that fits is " +
                                           text((number / ranks + 1) * ranks));
    }
    if (!config_.parallel.sequence_parallel) return;
    if (ranks == 1) {
      refuse({"parallel.sequence_parallel", "parallel.tensor"},
             "there is only one rank to share the tokens");
    }
    if (model.tokens % ranks != 0) {
      refuse({"parallel.sequence_parallel", "parallel.tensor", "model.tokens"},
             "each rank has an equal part of a sequence: " + division(model.tokens, ranks));
    }
  }

  void memory() const {
    const MemoryConfig& memory = config_.memory;
    if (!memory.rules.empty() && memory.inline_rules) {
      refuse({"memory.rules"},
             "the rules' tables are also given here; put them into the file or leave it out");
    }
  }

 private:
  /// "64 / 5 leaves 4"
  static std::string division(std::int64_t number, std::int64_t by) {
    return text(number) + " / " + text(by) + " leaves " + text(number % by);
  }

  [[noreturn]] void refuse(const std::vector<std::string>& keys, const std::string& why) const {
    std::string location;
    std::string values;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = locations_.find(keys[i]);
      if (location.empty() && found != locations_.end()) location = to_string(found->second) + ": ";
      if (i > 0) values += i + 1 == keys.size() ? " and " : ", ";
      values += keys[i] + " = " + value_text(*find_key(keys[i]), config_);
    }
    throw ConfigError("config", location + values + (keys.size() == 1 ? " is" : " are") +
                                    " impossible" + (keys.size() == 1 ? "" : " together") + ": " +
                                    why);
  }

  const TrainConfig& config_;
  const ConfigLocations& locations_;
};

}  // namespace

void check_together(const TrainConfig& config, const ConfigLocations& locations) {
  const Check check(config, locations);
  check.model();
  check.data();
  check.train();
  check.parallel();
  check.memory();
}

}  // namespace spillway::app
