#include "train/config/config_difference.hpp"

#include <gtest/gtest.h>

namespace spillway::app {
namespace {

using Texts = std::vector<std::string>;

Texts between(const Texts& then, const Texts& now) {
  return differences(parse_config("", "then.toml", then), parse_config("", "now.toml", now));
}

TEST(ConfigDifference, NamesWhatGivesOtherParameters) {
  EXPECT_EQ(between({"model.layers=4"}, {"optimizer.beta1=0.5"}),
            (Texts{"model.layers: 4 then, 8 now", "optimizer.beta1: 0.9 then, 0.5 now"}));
}

TEST(ConfigDifference, LetsLayoutMemoryAndFilesBeFree) {
  EXPECT_EQ(between({}, {"parallel.pipeline=4", "parallel.virtual=2", "memory.budget=33%",
                         "train.out=run", "train.checkpoint=c", "train.steps=99"}),
            Texts());
}

TEST(ConfigDifference, LetsDataRanksChangeWithTheSameMicroBatchesInAll) {
  EXPECT_EQ(between({"parallel.data=1", "train.micro_batches=4"},
                    {"parallel.data=2", "train.micro_batches=2"}),
            Texts());
  EXPECT_EQ(between({"train.micro_batches=4"}, {"parallel.data=2", "train.micro_batches=4"}),
            Texts{"parallel.data x parallel.expert x train.micro_batches: 1 x 1 x 4 = 4 then, 2 x "
                  "1 x 4 = 8 "
                  "now"});
}

}  // namespace
}  // namespace spillway::app
