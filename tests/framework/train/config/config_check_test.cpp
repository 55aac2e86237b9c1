#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "train/config/config.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;

struct Case {
  std::vector<std::string> overrides;
  std::string text;
};

// The whole text, with its arithmetic.
TEST(ConfigTogether, RefusesWhatDoesNotFitAndDoesTheArithmetic) {
  const std::vector<Case> cases = {
      {{"model.heads=5"},
       "--set model.heads=5: model.heads = 5 and model.hidden = 128 are impossible together: heads "
       "divide hidden: 128 / 5 leaves 3"},
      {{"model.kv_heads=3"},
       "--set model.kv_heads=3: model.kv_heads = 3 and model.heads = 4 are impossible together: "
       "kv_heads divide heads: 4 / 3 leaves 1"},
      {{"model.hidden=36", "model.heads=4"},
       "--set model.heads=4: model.heads = 4 and model.hidden = 36 are impossible together: rotary "
       "positions turn pairs of values, so a head has an even width: 36 / 4 = 9"},
      {{"model.kind=gpt", "model.kv_heads=2"},
       "--set model.kv_heads=2: model.kv_heads = 2 and model.kind = \"gpt\" are impossible "
       "together: "
       "gpt has as many heads of keys and values as heads; set kv_heads to 0"},
      {{"data.format=bin"},
       "--set data.format=bin: data.format = \"bin\" is impossible: it says how data.path is "
       "written, which is empty; give a file"},
      {{"data.evaluation=e.txt"},
       "--set data.evaluation=e.txt: data.evaluation = \"e.txt\" is impossible: the text to learn "
       "is made up, so no file is like it; empty it"},
      {{"data.path=a.txt", "data.format=generated"},
       "--set data.path=a.txt: data.path = \"a.txt\" and data.format = \"generated\" are "
       "impossible "
       "together: a generated text has no file; leave one of them out"},
      {{"train.checkpoint_every=5"},
       "--set train.checkpoint_every=5: train.checkpoint_every = 5 is impossible: "
       "train.checkpoint, the folder to write to, is empty"},
      {{"train.resume=latest"},
       "--set train.resume=latest: train.resume = \"latest\" is impossible: train.checkpoint, the "
       "folder to look in, is empty"},
      {{"optimizer.min_learning_rate=1"},
       "--set optimizer.min_learning_rate=1: optimizer.min_learning_rate = 1 and "
       "optimizer.learning_rate = 0.002 are impossible together: the learning rate would rise to "
       "its minimum"},
      {{"parallel.tensor=3"},
       "--set parallel.tensor=3: parallel.tensor = 3 and model.heads = 4 are impossible together: "
       "each rank has an equal part: 4 / 3 leaves 1; the next that fits is 6"},
      {{"parallel.tensor=2", "model.kv_heads=1"},
       "--set parallel.tensor=2: parallel.tensor = 2 and model.kv_heads = 1 are impossible "
       "together: each rank has an equal part: 1 / 2 leaves 1; the next that fits is 2"},
      {{"parallel.tensor=2", "model.vocabulary=257"},
       "--set parallel.tensor=2: parallel.tensor = 2 and model.vocabulary = 257 are impossible "
       "together: each rank has an equal part: 257 / 2 leaves 1; the next that fits is 258"},
      {{"parallel.tensor=2", "parallel.sequence_parallel=true", "model.tokens=65"},
       "--set parallel.sequence_parallel=true: parallel.sequence_parallel = true, parallel.tensor "
       "= 2 and model.tokens = 65 are impossible together: each rank has an equal part of a "
       "sequence: 65 / 2 leaves 1"},
      {{"parallel.sequence_parallel=true"},
       "--set parallel.sequence_parallel=true: parallel.sequence_parallel = true and "
       "parallel.tensor = 1 are impossible together: there is only one rank to share the tokens"},
      {{"parallel.expert=4"},
       "--set parallel.expert=4: parallel.expert = 4 and model.experts = 0 are impossible "
       "together: there are no experts to spread over ranks"},
      {{"model.experts=6", "parallel.expert=4"},
       "--set model.experts=6: model.experts = 6 and parallel.expert = 4 are impossible together: "
       "every rank has equally many experts: 6 / 4 leaves 2"},
      {{"model.experts=4", "model.expert_ffn=33", "parallel.tensor=2"},
       "--set parallel.tensor=2: parallel.tensor = 2 and model.expert_ffn = 33 are impossible "
       "together: each rank has an equal part: 33 / 2 leaves 1; the next that fits is 34"},
      {{"model.experts=2", "model.chosen_experts=3"},
       "--set model.chosen_experts=3: model.chosen_experts = 3 and model.experts = 2 are "
       "impossible together: a token sees each expert once at most"},
      {{"model.experts=2", "model.moe_layers=8,9"},
       "--set model.moe_layers=8,9: model.moe_layers = \"8,9\" and model.layers = 8 are impossible "
       "together: none of the layers 0 to 7 would have experts"},
      {{"parallel.virtual=2", "parallel.schedule=gpipe"},
       "--set parallel.virtual=2: parallel.virtual = 2 and parallel.schedule = \"gpipe\" are "
       "impossible together: GPipe has one chunk on each stage; use 1f1b, or virtual = 1"},
      {{"parallel.pipeline=3", "parallel.virtual=3"},
       "--set parallel.pipeline=3: parallel.pipeline = 3, parallel.virtual = 3 and model.layers = "
       "8 "
       "are impossible together: every chunk has a layer: 3 x 3 = 9 chunks, but 8 layers"},
      {{"parallel.pipeline=2", "parallel.segmentation=0,4,9"},
       "--set parallel.segmentation=0,4,9: parallel.segmentation = \"0,4,9\" and model.layers = 8 "
       "are impossible together: the last bound is the number of layers: 9 is not 8"},
      {{"parallel.pipeline=2", "parallel.segmentation=memory"},
       "--set parallel.segmentation=memory: parallel.segmentation = \"memory\" is impossible: it "
       "is known from a profile of the whole model; make one with `spillway profile`, and name it "
       "in parallel.profile"},
      {{"parallel.pipeline=2", "parallel.segmentation=0,4,6,8"},
       "--set parallel.segmentation=0,4,6,8: parallel.segmentation = \"0,4,6,8\", "
       "parallel.pipeline = 2 and parallel.virtual = 1 are impossible together: 2 x 1 = 2 chunks "
       "have 3 bounds, found 4"},
      {{"parallel.recompute_offload=true"},
       "--set parallel.recompute_offload=true: parallel.recompute_offload = true and "
       "parallel.recompute_interval = 0 are impossible together: nothing is recomputed, so there "
       "are no inputs to offload"},
      {{"parallel.recompute_partition=true"},
       "--set parallel.recompute_partition=true: parallel.recompute_partition = true and "
       "parallel.recompute_interval = 0 are impossible together: nothing is recomputed, so there "
       "are no inputs to shard"},
      {{"parallel.tensor=2", "parallel.sequence_parallel=true", "parallel.recompute_interval=1",
        "parallel.recompute_partition=true"},
       "--set parallel.recompute_partition=true: parallel.recompute_partition = true and "
       "parallel.sequence_parallel = true are impossible together: each rank has another part of "
       "the sequence, so the input of a layer is not equal on the ranks and cannot be sharded "
       "over them"},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(error_text<ConfigError>([&] { (void)parse_config("", "run.toml", each.overrides); }),
              "[config] " + each.text);
  }
}

TEST(ConfigTogether, NamesTheLocationInTheFile) {
  EXPECT_EQ(
      error_text<ConfigError>(
          [&] { (void)parse_config("[model]\nhidden = 66\n", "run.toml", {}); }),
      "[config] run.toml:2:10: model.heads = 4 and model.hidden = 66 are impossible together: "
      "heads divide hidden: 66 / 4 leaves 2");
}

TEST(ConfigTogether, TakesWhatFits) {
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"parallel.pipeline=4", "parallel.virtual=2"},
           {"parallel.pipeline=2", "parallel.segmentation=0,5,8"},
           {"parallel.pipeline=3", "train.micro_batches=5", "parallel.data=2"},
           {"model.kind=gpt", "model.kv_heads=0"},
           {"data.path=a.bin", "data.evaluation=b.bin"},
           {"parallel.recompute_interval=2", "parallel.recompute_offload=true"},
           {"parallel.recompute_interval=2", "parallel.recompute_partition=true"},
           {"parallel.schedule=gpipe", "parallel.pipeline=2"}}) {
    EXPECT_NO_THROW((void)parse_config("", "run.toml", overrides)) << overrides[0];
  }
}

}  // namespace
}  // namespace spillway::app
