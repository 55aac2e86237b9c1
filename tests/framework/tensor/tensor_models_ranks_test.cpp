/// Models whose matrices two ranks share: beside one rank, and with a session beside without. With
/// four ranks these are two stages.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/pipeline/pipeline_models.hpp"
#include "spillway/comm/same_replays.hpp"
#include "spillway/comm/topology.hpp"
#include "spillway/groups/shard_group.hpp"
#include "spillway/models/gpt.hpp"
#include "spillway/models/llama.hpp"
#include "support/error_text.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace spillway::literals;
using testing::different;
using testing::error_text;
using testing::make_batches;
using testing::make_model;
using testing::PipelineCase;
using testing::ranks;
using testing::train_alone;
using testing::train_in;
using testing::Trained;
using testing::TrainingCase;

constexpr const char* kRecomputeLayers =
    "[[rule]]\nlayers = '0..7'\ngroup_inputs = 1\naction = 'keep'\n"
    "[[rule]]\nlayers = '0..7'\naction = 'recompute'\n";
constexpr const char* kMixed =
    "[[rule]]\nmodule = ['attn_norm', 'mlp_norm', 'act', 'core_attn']\naction = 'recompute'\n"
    "[[rule]]\naction = 'offload'\n";
constexpr const char* kPartition = "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\n";
constexpr const char* kCollectivesToo = "[limits]\nrecompute_collectives = true\n";

SessionOptions options_with(const std::string& rules) {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = Bytes(256);
  options.host = 64_MiB;
  options.offload_window = 16_KiB;
  options.prefetch_window = 16_KiB;
  options.rules = parse_rules(rules, "a test");
  return options;
}

/// How many of the plan's decisions are of that kind.
std::size_t decisions(const Plan& plan, ActionKind kind) {
  std::size_t count = 0;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Decision& decision : chunk.decisions) count += decision.action.kind == kind ? 1 : 0;
  }
  return count;
}

/// Whether replays repeat collectives.
bool repeats_collectives(const Plan& plan) {
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const RecordedOperator& call : chunk.operators) {
      const bool held = std::any_of(chunk.anchors.begin(), chunk.anchors.end(),
                                    [&](const Anchor& each) { return each.call == call.call; });
      if (!held && call.name.starts_with("spillway_group::")) return true;
    }
  }
  return false;
}

/// The parameter: whether sequences are split too.
class TensorModels : public ::testing::TestWithParam<bool> {
 protected:
  TensorModels()
      : topology_(ranks().size(), {.pipeline = 0, .tensor = 2}),
        tensor_{group_of(topology_), GetParam()} {}

  static const Group& group_of(const Topology& topology) {
    static const Group kGroup = ranks().group("tensor", topology.partition(Axis::kTensor));
    return kGroup;
  }

  static std::shared_ptr<ShardGroup> shards_of(const Topology& topology) {
    static const std::shared_ptr<ShardGroup> kShards =
        shard_group(ranks().group("shard", topology.partition(Axis::kTensor)));
    return kShards;
  }

  [[nodiscard]] PipelineCase placed(PipelineCase of) const {
    of.stages = topology_.size(Axis::kPipeline);
    of.stage = topology_.coordinate(ranks().rank(), Axis::kPipeline);
    of.tensor = tensor_;
    return of;
  }

  Trained train(const PipelineCase& of, const TrainingCase& how, Session* session = nullptr) {
    PipelineLayer model = make_model(placed(of));
    return train_in(model, make_pipeline_groups(ranks(), topology_, model), how, session);
  }

  Topology topology_;
  TensorParallel tensor_;
};

INSTANTIATE_TEST_SUITE_P(Sequence, TensorModels, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "split" : "whole"; });

TEST_P(TensorModels, LearnWhatOneRankLearns) {
  for (const char* kind : {"llama", "gpt"}) {
    const PipelineCase of{.model = kind, .layers = 4, .tied = std::string(kind) == "gpt"};
    const TrainingCase how{.steps = 2, .micro_batches = 2};
    const Trained wanted = train_alone(of, how);
    PipelineLayer model = make_model(placed(of));
    const Trained found = train_in(model, make_pipeline_groups(ranks(), topology_, model), how);
    // Sums are made in another order.
    EXPECT_NEAR(found.losses.back(), wanted.losses.back(), 1e-5) << kind;
    int sharded = 0;
    for (const StageParameter& parameter : model.stage_parameters()) {
      at::Tensor whole = parameter.value.detach();
      if (parameter.shard) {
        ++sharded;
        EXPECT_EQ(whole.numel() * 2, wanted.weights.at(parameter.name).numel()) << parameter.name;
        whole = gather_buffer(tensor_.group, whole, *parameter.shard);
      } else {
        const at::Tensor all = tensor_.group.all_gather(whole);
        EXPECT_TRUE(at::equal(all[0], all[1])) << parameter.name;
      }
      EXPECT_TRUE(at::allclose(whole, wanted.weights.at(parameter.name), 1e-3, 1e-5))
          << parameter.name;
    }
    EXPECT_GT(sharded, 4);
  }
}

TEST_P(TensorModels, HaveTheSameBitsWithASession) {
  for (const char* kind : {"llama", "gpt"}) {
    const PipelineCase of{.model = kind, .layers = 2, .dropout = 0.2};
    // One step records, one verifies, one runs as planned.
    const TrainingCase how{.steps = 3, .micro_batches = 2, .autocast = at::kBFloat16};
    const Trained wanted = train(of, how);
    for (const std::string& rules :
         {std::string("[[rule]]\naction = 'offload'\n"), std::string(kRecomputeLayers),
          std::string(kMixed), std::string(kRecomputeLayers) + kCollectivesToo}) {
      Session session(options_with(rules));
      const Trained found = train(of, how, &session);
      EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty()) << kind << "\n" << rules;
      EXPECT_EQ(found.losses, wanted.losses) << kind << "\n" << rules;
      EXPECT_THAT(session.report().fallbacks, IsEmpty()) << kind << "\n" << rules;
      EXPECT_THAT(session.report().demoted, IsEmpty()) << kind << "\n" << rules;
      const Plan& plan = *session.plan();
      const bool recomputes = rules.find("recompute'") != std::string::npos;
      EXPECT_EQ(decisions(plan, ActionKind::kRecompute) > 0, recomputes) << kind << "\n" << rules;
      EXPECT_EQ(repeats_collectives(plan), rules.find(kCollectivesToo) != std::string::npos)
          << kind << "\n"
          << rules;
      EXPECT_NO_THROW(require_same_replays(tensor_.group, &plan, at::kCPU));
    }
  }
}

TEST_P(TensorModels, ShardInputsOfLayersUnlessSequencesAreSplit) {
  const PipelineCase of{.model = "gpt", .layers = 4, .dropout = 0.2};
  const TrainingCase how{.steps = 5, .micro_batches = 3};
  const Trained wanted = train(of, how);
  for (const std::string& rules :
       {std::string(kPartition), std::string(kPartition) + "recompute_offload = true\n",
        std::string("[[rule]]\naction = 'offload'\nshard = true\n")}) {
    for (const bool fitted : {false, true}) {
      SessionOptions options = options_with(rules);
      // Ranks need not agree on windows, neither on given nor on fitted ones.
      options.prefetch_window =
          fitted ? std::nullopt : std::optional(Bytes(1U << (10 + 6 * tensor_.rank())));
      if (fitted) options.offload_window = std::nullopt;
      Session session(std::move(options));
      session.set_shard_group(shards_of(topology_));
      const Trained found = train(of, how, &session);
      EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty()) << rules;
      EXPECT_EQ(found.losses, wanted.losses) << rules;
      const SessionReport report = session.report();
      ASSERT_TRUE(report.shard.has_value());
      EXPECT_EQ(report.shard->gathers, report.shard->buffers) << rules << report;
      if (!GetParam()) {
        EXPECT_GT(report.shard->buffers, 0U) << rules << report;
        EXPECT_LE(report.shard->part_bytes.count(), (report.shard->bytes.count() + 1024) * 6 / 10);
      } else if (rules.starts_with(kPartition)) {
        EXPECT_EQ(report.shard->buffers, 0U) << rules << report;
        EXPECT_THAT(report.shard->mismatched,
                    ::testing::Contains(HasSubstr("not equal on all ranks of the shard group")));
      }
    }
  }
}

TEST_P(TensorModels, HaveTheSameBitsWithABudget) {
  const PipelineCase of{.model = "gpt", .layers = 2, .dropout = 0.2};
  const TrainingCase how{.steps = 4, .micro_batches = 2};
  const Trained wanted = train(of, how);
  SessionOptions options = options_with("");
  options.budget = Budget::share(0.7);
  options.plan_in_background = false;
  Session session(std::move(options));
  const Trained found = train(of, how, &session);
  EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty());
  EXPECT_EQ(found.losses, wanted.losses);
  const Plan& plan = *session.plan();
  EXPECT_LT(decisions(plan, ActionKind::kKeep), [&] {
    std::size_t all = 0;
    for (const ChunkPlan& chunk : plan.chunks) all += chunk.decisions.size();
    return all;
  }());
}

TEST_P(TensorModels, RefuseToRepeatCollectivesInDifferentOrders) {
  Plan plan;
  plan.recompute_collectives = true;
  plan.chunks.emplace_back();
  for (const int buffer : {0, 1}) {
    Decision& decision = plan.chunks[0].decisions.emplace_back();
    decision.buffer = buffer;
    decision.action.kind = ActionKind::kRecompute;
  }
  plan.chunks[0].need_order = {0, 1};
  EXPECT_NO_THROW(require_same_replays(tensor_.group, &plan, at::kCPU));
  if (tensor_.rank() == 1) plan.chunks[0].need_order = {1, 0};
  EXPECT_THAT(
      error_text<InvalidArgument>([&] { require_same_replays(tensor_.group, &plan, at::kCPU); }),
      HasSubstr("would replay different calls"));
  plan.recompute_collectives = false;
  EXPECT_NO_THROW(require_same_replays(tensor_.group, &plan, at::kCPU));
}

TEST_P(TensorModels, RefuseShapesThatCannotBeShared) {
  GptShape gpt{.layers = 1, .hidden = 12, .heads = 3, .parallel = tensor_};
  EXPECT_THAT(
      error_text<InvalidArgument>([&] { (void)gpt_layers(gpt); }),
      HasSubstr("heads = 3 over 2 tensor-parallel ranks: 3 / 2 leaves 1; the next that fits "
                "is 4"));
  LlamaShape llama{.layers = 1, .hidden = 16, .heads = 4, .kv_heads = 1, .parallel = tensor_};
  EXPECT_THAT(error_text<InvalidArgument>([&] { (void)llama_layers(llama); }),
              HasSubstr("kv_heads = 1 over 2"));
}

}  // namespace
}  // namespace spillway
