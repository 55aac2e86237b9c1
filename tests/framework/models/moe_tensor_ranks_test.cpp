/// Experts whose widths two ranks share, beside all on one rank, and with a session beside without.
/// With four ranks the experts are spread over two pairs.

#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe_training.hpp"
#include "spillway/groups/shard_group.hpp"
#include "support/error_text.hpp"
#include "support/random_cases.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using testing::count_different;
using testing::error_text;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::moe_batches;
using testing::moe_layers;
using testing::moe_model;
using testing::moe_rules;
using testing::moe_session;
using testing::MoeCase;
using testing::MoeTrained;
using testing::ranks;
using testing::train_moe;

/// The parameter: whether sequences are split too.
class TensorExperts : public ::testing::TestWithParam<bool> {
 protected:
  TensorExperts() : tensor_{group_of(Axis::kTensor), GetParam()} {}

  static const Topology& topology() {
    static const Topology kTopology(ranks().size(), {.tensor = 2, .expert = ranks().size() / 2});
    return kTopology;
  }

  static const Group& group_of(Axis axis) {
    static const Group kTensor = ranks().group("tensor", topology().partition(Axis::kTensor));
    static const Group kExpert = ranks().group("expert", topology().partition(Axis::kExpert));
    return axis == Axis::kTensor ? kTensor : kExpert;
  }

  [[nodiscard]] MoeCase placed(MoeCase of) const {
    of.experts = group_of(Axis::kExpert);
    of.tensor = tensor_;
    return of;
  }

  MoeTrained train(const MoeCase& of, Session* session, int steps = 6) {
    PipelineLayer model = moe_model(placed(of));
    return train_moe(model, make_pipeline_groups(ranks(), topology(), model), session,
                     std::vector<std::int64_t>(static_cast<std::size_t>(steps), 32));
  }

  /// Gradients and extra losses of a step beside those of one rank that has all, in double, so that
  /// only the order of sums differs.
  void compare(MoeCase of);

  TensorParallel tensor_;
};

INSTANTIATE_TEST_SUITE_P(Sequence, TensorExperts, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "split" : "whole"; });

void TensorExperts::compare(MoeCase of) {
  of.dtype = at::kDouble;
  of.dropout = 0;
  const int sources = group_of(Axis::kExpert).size();
  std::map<std::string, at::Tensor> wanted;
  at::Tensor losses = at::zeros({2}, at::kDouble);
  for (int source = 0; source < sources; ++source) {
    PipelineLayer whole = moe_model(of);
    PipelineRunner alone(whole, {});
    const StepOutcome outcome =
        alone.train(moe_batches(0, source, 3), nullptr, at::full({}, 1.0 / sources));
    losses += alone.mean_extra_losses(outcome) / sources;
    for (const StageParameter& parameter : whole.stage_parameters()) {
      at::Tensor& sum = wanted[parameter.name];
      sum = sum.defined() ? sum + parameter.value.grad() : parameter.value.grad().clone();
    }
  }
  PipelineLayer model = moe_model(placed(of));
  const PipelineGroups groups = make_pipeline_groups(ranks(), topology(), model);
  PipelineRunner runner(model, groups);
  const StepOutcome outcome = runner.train(moe_batches(0, groups.data.rank(), 3));
  EXPECT_TRUE(at::allclose(runner.mean_extra_losses(outcome), losses, 1e-9, 0));
  int sharded = 0;
  for (const StageParameter& parameter : model.stage_parameters()) {
    at::Tensor all = wanted.at(parameter.name);
    const ExpertSlice& slice = parameter.experts;
    if (slice.any()) {
      EXPECT_TRUE(parameter.shard.has_value()) << parameter.name;
      all = all.narrow(0, slice.first, slice.count);
    }
    at::Tensor found = parameter.value.grad();
    if (parameter.shard) {
      ++sharded;
      found = gather_buffer(tensor_.group, found, *parameter.shard);
      EXPECT_EQ(found.numel(), 2 * parameter.value.numel()) << parameter.name;
    } else {
      const at::Tensor both = tensor_.group.all_gather(found);
      EXPECT_TRUE(at::equal(both[0], both[1])) << parameter.name;
    }
    EXPECT_TRUE(at::allclose(found, all, 1e-7, 1e-10)) << parameter.name;
  }
  EXPECT_GT(sharded, 8);
}

TEST_P(TensorExperts, LearnWhatOneRankLearns) {
  compare({});
  compare({.model = "gpt"});
}

TEST_P(TensorExperts, LearnWhatOneRankLearnsWithEveryOverlapAndCapacity) {
  for (const MoeOverlap overlap : {MoeOverlap::kNone, MoeOverlap::kHalves}) {
    for (const double factor : {0.0, 0.75}) {
      compare({.capacity_factor = factor, .overlap = overlap});
    }
  }
}

TEST_P(TensorExperts, HaveTheSameBitsWithASession) {
  for (const char* kind : testing::some(std::vector{"llama", "gpt"}, 1)) {
    const MoeCase of{.model = kind};
    const MoeTrained wanted = train(of, nullptr);
    for (const auto& [name, rules] : moe_rules()) {
      Session session(moe_session(rules));
      const MoeTrained found = train(of, &session);
      EXPECT_EQ(count_different(found.values, wanted.values), 0) << kind << ": " << name;
      EXPECT_THAT(session.report().fallbacks, IsEmpty()) << kind << ": " << name;
      EXPECT_THAT(session.report().demoted, IsEmpty()) << kind << ": " << name;
    }
  }
}

TEST_P(TensorExperts, HaveTheSameBitsWithABudget) {
  const MoeTrained wanted = train({}, nullptr);
  SessionOptions options = moe_session("");
  options.budget = Budget::share(0.8);
  options.plan_in_background = false;
  Session session(std::move(options));
  const MoeTrained found = train({}, &session);
  EXPECT_EQ(count_different(found.values, wanted.values), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.budget->problem, "");
  EXPECT_GT(report.bytes_out.count() + report.bytes_recomputed.count(), 0U) << report;
}

/// Rows of experts are equal on the tensor ranks, however many come in a step.
TEST_P(TensorExperts, ShareWhatIsEqualOnBoth) {
  static const std::shared_ptr<ShardGroup> kShards =
      shard_group(ranks().group("shard", topology().partition(Axis::kTensor)));
  const MoeTrained wanted = train({}, nullptr);
  for (const char* action : {"keep", "offload"}) {
    Session session(moe_session(std::string("[[rule]]\nmodule = 'expert_fc1'\nshard = true\n") +
                                "action = '" + action + "'\n"));
    session.set_shard_group(kShards);
    const MoeTrained found = train({}, &session);
    EXPECT_EQ(count_different(found.values, wanted.values), 0) << action;
    const SessionReport report = session.report();
    ASSERT_TRUE(report.shard.has_value());
    EXPECT_GT(report.shard->buffers, 0U) << report;
    EXPECT_EQ(report.shard->gathers, report.shard->buffers) << report;
  }
}

TEST_P(TensorExperts, RefuseWidthsThatCannotBeShared) {
  MlpShape mlp{.hidden = 16, .parallel = tensor_};
  EXPECT_THAT(error_text<InvalidArgument>([&] { (void)Moe({.experts = 4, .ffn = 9}, 16, mlp); }),
              HasSubstr("expert_ffn = 9 over 2 tensor-parallel ranks: 9 / 2 leaves 1; the next "
                        "that fits is 10"));
  EXPECT_THAT(
      error_text<InvalidArgument>([&] { (void)Moe({.experts = 4, .shared_ffn = 7}, 16, mlp); }),
      HasSubstr("shared_expert_ffn = 7 over 2"));
}

}  // namespace
}  // namespace spillway
