/// Pipelines of several processes: run under mpirun with as many ranks as each case says; cases for
/// other numbers of ranks are skipped.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline_models.hpp"
#include "spillway/comm/topology.hpp"
#include "support/random_cases.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using ::testing::IsEmpty;
using namespace spillway::literals;
using testing::different;
using testing::make_batches;
using testing::make_model;
using testing::PipelineCase;
using testing::ranks;
using testing::train_alone;
using testing::train_in;
using testing::Trained;
using testing::TrainingCase;

enum class Memory { kKeep, kOffload, kRecompute, kBoth, kBudget };

/// A layout of ranks and what runs on it.
struct Layout {
  std::string name;
  int data = 1;
  int stages = 1;
  int chunks = 1;
  int micro_batches = 4;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;

  [[nodiscard]] int ranks() const { return data * stages; }
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

Rules rules_for(Memory memory) {
  const auto rule = [](const char* text) { return parse_rules(text, "a test"); };
  switch (memory) {
    case Memory::kOffload:
      return rule("[[rule]]\naction = 'offload'\n");
    case Memory::kRecompute:
      return rule(
          "[[rule]]\nlayers = '0..7'\ngroup_inputs = 1\naction = 'keep'\n"
          "[[rule]]\nlayers = '0..7'\naction = 'recompute'\n");
    case Memory::kBoth:
      return rule(
          "[[rule]]\nmodule = ['attn_norm', 'mlp_norm', 'act']\naction = 'recompute'\n"
          "[[rule]]\naction = 'offload'\n");
    case Memory::kKeep:
    case Memory::kBudget:
      break;
  }
  return {};
}

SessionOptions options_for(Memory memory) {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = Bytes(256);
  options.host = 64_MiB;
  options.offload_window = 16_KiB;
  options.prefetch_window = 16_KiB;
  options.rules = rules_for(memory);
  if (memory == Memory::kBudget) {
    options.budget = Budget::share(0.8);
    options.plan_in_background = false;
  }
  return options;
}

class Ranks : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    if (ranks().size() != GetParam().ranks()) {
      GTEST_SKIP() << "skipped: " << GetParam().ranks() << " ranks wanted, " << ranks().size()
                   << " are there";
    }
    topology_.emplace(ranks().size(),
                      TopologySizes{.data = GetParam().data, .pipeline = GetParam().stages});
  }

  [[nodiscard]] PipelineCase placed(PipelineCase of) const {
    of.stages = GetParam().stages;
    of.stage = topology_->coordinate(ranks().rank(), Axis::kPipeline);
    of.chunks = GetParam().chunks;
    return of;
  }

  [[nodiscard]] TrainingCase training() const {
    return {.micro_batches = GetParam().micro_batches, .schedule = GetParam().schedule};
  }

  Trained train(const PipelineCase& of, const TrainingCase& how, Session* session) {
    PipelineLayer model = make_model(placed(of));
    return train_in(model, make_pipeline_groups(ranks(), *topology_, model), how, session);
  }

  std::optional<Topology> topology_;
};

TEST_P(Ranks, HaveTheBitsOfOneProcess) {
  if (GetParam().data > 1) GTEST_SKIP() << "skipped: one process has no data ranks";
  for (const char* kind : {"llama", "gpt"}) {
    PipelineCase of{.model = kind, .dropout = 0.2};
    TrainingCase how = training();
    how.uneven = true;
    const Trained wanted = train_alone(of, how);
    const Trained found = train(of, how, nullptr);
    EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty()) << kind;
    EXPECT_EQ(found.losses, wanted.losses) << kind;
  }
}

TEST_P(Ranks, HaveTheSameBitsWithASession) {
  for (const bool autocast : {false, true}) {
    const PipelineCase of{.dropout = 0.2};
    TrainingCase how = training();
    how.steps = 5;
    if (autocast) how.autocast = at::kBFloat16;
    const Trained wanted = train(of, how, nullptr);
    const std::vector all{Memory::kBoth, Memory::kBudget, Memory::kKeep, Memory::kOffload,
                          Memory::kRecompute};
    for (const Memory memory : testing::some(all, autocast ? 1 : 2)) {
      Session session(options_for(memory));
      const Trained found = train(of, how, &session);
      EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty())
          << static_cast<int>(memory) << autocast;
      EXPECT_EQ(found.losses, wanted.losses) << static_cast<int>(memory) << autocast;
      const SessionReport report = session.report();
      EXPECT_THAT(report.fallbacks, IsEmpty()) << static_cast<int>(memory) << autocast;
    }
  }
}

TEST_P(Ranks, HaveTheSameBitsIfOneOfThemHasNoHostMemory) {
  const PipelineCase of{.dropout = 0.2};
  const TrainingCase how = training();
  const Trained wanted = train(of, how, nullptr);
  SessionOptions options = options_for(Memory::kOffload);
  if (ranks().rank() == 1) options.host = 16_KiB;
  Session session(std::move(options));
  const Trained found = train(of, how, &session);
  EXPECT_THAT(different(found.weights, wanted.weights), IsEmpty());
  EXPECT_EQ(found.losses, wanted.losses);
  EXPECT_EQ(session.report().fallbacks.empty(), ranks().rank() != 1);
}

TEST_P(Ranks, TieWeightsOverStages) {
  const PipelineCase of{.model = "gpt", .tied = true};
  const TrainingCase how = training();
  PipelineLayer model = make_model(placed(of));
  const Trained found =
      train_in(model, make_pipeline_groups(ranks(), *topology_, model), how, nullptr);
  if (GetParam().data == 1) {
    // Sums of gradients in another order: not the same bits, but the same numbers.
    const Trained wanted = train_alone(of, how);
    for (const auto& [name, value] : found.weights) {
      EXPECT_TRUE(at::allclose(value, wanted.weights.at(name), 1e-3, 1e-5)) << name;
    }
  }
  // All copies are the same to the bit.
  const Group everyone = ranks().everyone();
  for (const SharedWeights& weights : model.all_shared_weights()) {
    at::Tensor mine = at::zeros({60, 32});
    for (const SharedWeights& here : model.shared_weights()) {
      if (here.key == weights.key) mine = here.parameters[0].detach().clone();
    }
    const at::Tensor all = everyone.all_gather(mine);
    for (int rank = 0; rank < ranks().size(); ++rank) {
      const int stage = topology_->coordinate(rank, Axis::kPipeline);
      if (stage != 0 && stage != GetParam().stages - 1) continue;
      EXPECT_TRUE(at::equal(all[rank], all[0])) << rank;
    }
  }
}

TEST_P(Ranks, SumGradientsOverDataRanks) {
  if (GetParam().data == 1) GTEST_SKIP() << "skipped: one data rank";
  const PipelineCase of{};
  PipelineLayer model = make_model(placed(of));
  const PipelineGroups groups = make_pipeline_groups(ranks(), *topology_, model);
  // Small buckets, so that several are under way.
  PipelineRunner runner(model, groups, {.bucket = 8_KiB});
  const StepOutcome outcome =
      runner.train(make_batches(0, groups.data.rank(), GetParam().micro_batches));
  const double loss = runner.mean_loss(outcome).item<double>();
  EXPECT_EQ(runner.mean_loss(outcome).item<double>(), loss);  // It changes nothing.

  // By hand: the gradients of each data rank in one process, added in the order of the ranks.
  std::map<std::string, at::Tensor> wanted;
  for (int rank = 0; rank < GetParam().data; ++rank) {
    PipelineLayer whole = make_model(of);
    PipelineRunner alone(whole, {});
    (void)alone.train(make_batches(0, rank, GetParam().micro_batches), nullptr,
                      at::full({}, 1.0 / GetParam().data));
    for (const StageParameter& parameter : whole.stage_parameters()) {
      at::Tensor& sum = wanted[parameter.name];
      sum = sum.defined() ? sum + parameter.value.grad() : parameter.value.grad().clone();
    }
  }
  for (const StageParameter& parameter : model.stage_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value.grad(), wanted.at(parameter.name))) << parameter.name;
  }
}

TEST_P(Ranks, EvaluateInBetween) {
  const PipelineCase of{.dropout = 0.1};
  PipelineLayer model = make_model(placed(of));
  const PipelineGroups groups = make_pipeline_groups(ranks(), *topology_, model);
  PipelineRunner runner(model, groups);
  const auto batches = make_batches(0, 0, 3, /*uneven=*/true);
  const double before = runner.mean_loss(runner.evaluate(batches)).item<double>();
  (void)runner.train(make_batches(1, groups.data.rank(), GetParam().micro_batches));
  EXPECT_EQ(runner.mean_loss(runner.evaluate(batches)).item<double>(), before);
  PipelineLayer whole = make_model(of);
  PipelineRunner alone(whole, {});
  EXPECT_EQ(alone.evaluate(batches).loss.item<double>(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Pipelines, Ranks,
    ::testing::Values(Layout{"two_stages", 1, 2, 1, 4}, Layout{"four_stages", 1, 4, 1, 6},
                      Layout{"two_stages_two_chunks", 1, 2, 2, 4},
                      Layout{"three_stages_five_micro_batches", 1, 3, 1, 5},
                      Layout{"two_stages_two_data_ranks", 2, 2, 1, 4},
                      Layout{"two_stages_all_forward_first", 1, 2, 1, 3, ScheduleKind::kGpipe},
                      Layout{"three_stages_two_chunks_four_micro_batches", 1, 3, 2, 4}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace spillway
