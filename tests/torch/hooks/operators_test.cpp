// Traits of operators.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torch/hooks/operator_traits.hpp"

namespace spillway {
namespace {

OperatorTraits traits_of(const char* name, const char* overload = "") {
  return OperatorTraits(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

TEST(OperatorTraits, KnowWhichArgumentsAreChanged) {
  EXPECT_FALSE(traits_of("aten::add", "Tensor").writes_any);
  EXPECT_THAT(traits_of("aten::add_", "Tensor").writes, ::testing::ElementsAre(true, false, false));
  EXPECT_THAT(traits_of("aten::add", "out").writes,
              ::testing::ElementsAre(false, false, false, true));
  EXPECT_FALSE(traits_of("aten::view").writes_any);  // An alias is no change.
  EXPECT_TRUE(traits_of("aten::_foreach_add_", "Scalar").writes[0]);
}

TEST(OperatorTraits, RejectCollectives) {
  for (const char* const name :
       {"c10d::allreduce_", "c10d::alltoall_", "_c10d_functional::all_reduce",
        "_c10d_functional::all_gather_into_tensor", "_c10d_functional::wait_tensor"}) {
    const auto handle = c10::Dispatcher::singleton().findSchema({name, ""});
    ASSERT_TRUE(handle) << name;
    const OperatorTraits traits(*handle);
    EXPECT_TRUE(traits.collective) << name;
    EXPECT_EQ(traits.no_replay, "a collective") << name;
  }
  EXPECT_FALSE(traits_of("aten::mm").collective);
  EXPECT_TRUE(traits_of("_c10d_functional::all_to_all_single").collective);
  // Not even where collectives may be repeated.
  EXPECT_EQ(traits_of("_c10d_functional::all_to_all_single").no_replay,
            "an exchange of rows between ranks");
}

TEST(OperatorTraits, RejectOperatorsWithHiddenSideEffects) {
  for (const char* const name :
       {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::batch_norm",
        "aten::_batch_norm_impl_index", "aten::batch_norm_gather_stats",
        "aten::batch_norm_gather_stats_with_counts", "aten::batch_norm_update_stats",
        "aten::_cudnn_rnn"}) {
    EXPECT_EQ(traits_of(name).no_replay, "an operator with side effects") << name;
  }
}

TEST(OperatorTraits, RejectInPlaceChangesOfShapes) {
  for (const char* const name : {"aten::t_", "aten::unsqueeze_", "aten::squeeze_"}) {
    EXPECT_EQ(traits_of(name).no_replay, "an operator that changes a shape in place") << name;
  }
  EXPECT_EQ(traits_of("aten::resize_").no_replay, "an operator with side effects");
}

TEST(OperatorTraits, RejectSizesThatDependOnData) {
  for (const char* const name : {"aten::nonzero", "aten::masked_select", "aten::_unique2"}) {
    EXPECT_EQ(traits_of(name).no_replay, "a result whose size depends on data") << name;
  }
  EXPECT_EQ(traits_of("aten::_local_scalar_dense").no_replay,
            "a result whose size depends on data");
}

TEST(OperatorTraits, KnowWhatIsRandom) {
  EXPECT_TRUE(traits_of("aten::native_dropout").random);
  EXPECT_TRUE(traits_of("aten::bernoulli_", "float").random);
  EXPECT_TRUE(traits_of("aten::rand").random);
  EXPECT_TRUE(traits_of("aten::_scaled_dot_product_flash_attention").random);
  EXPECT_FALSE(traits_of("aten::mm").random);
}

TEST(OperatorTraits, KnowUninitialisedMemory) {
  EXPECT_TRUE(traits_of("aten::empty", "memory_format").uninitialised);
  EXPECT_TRUE(traits_of("aten::empty_like").uninitialised);
  EXPECT_TRUE(traits_of("aten::new_empty").uninitialised);
  EXPECT_FALSE(traits_of("aten::zeros").uninitialised);
  EXPECT_FALSE(traits_of("aten::full").uninitialised);
}

TEST(OperatorTraits, AllowWhatModelsAreMadeOf) {
  for (const char* const name :
       {"aten::mm", "aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::silu",
        "aten::convolution", "aten::embedding", "aten::native_dropout", "aten::cat",
        "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_to_copy", "aten::clone"}) {
    EXPECT_EQ(traits_of(name).no_replay, "") << name;
  }
}

}  // namespace
}  // namespace spillway
