#include "torch/record/freed_weights.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(Layers, DifferByNumbersOfTheirScopes) {
  EXPECT_TRUE(in_one_layer("layers.0.norm", "layers.0.mlp.up"));
  EXPECT_TRUE(in_one_layer("layers.0", "layers.0.mlp"));
  EXPECT_TRUE(in_one_layer("0.up", "0"));
  EXPECT_TRUE(in_one_layer("layers.1.norm", "layers.1.experts.3"));
  EXPECT_FALSE(in_one_layer("layers.1", "layers.10"));
  EXPECT_FALSE(in_one_layer("stages.0.layers.1", "stages.0.layers.2"));
  EXPECT_FALSE(in_one_layer("layers.1.experts.3", "layers.1.experts.4"));
  EXPECT_FALSE(in_one_layer("text.layers.1", "image.layers.1"));
  EXPECT_FALSE(in_one_layer("head", "head"));
  EXPECT_FALSE(in_one_layer("", ""));
  EXPECT_FALSE(in_one_layer("layers.0", ""));
}

}  // namespace
}  // namespace spillway
