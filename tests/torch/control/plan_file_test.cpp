// A plan that one session saved and another one loads: executed from the first step on, or detected
// as not fitting.
#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/torch/session.hpp"
#include "support/error_text.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::error_text;
using ::testing::HasSubstr;
using testing::TinyModel;
using testing::TinyOptions;

constexpr const char* kDiverged = "the pass saved other tensors than profiled";
constexpr const char* kOtherStructure =
    "the plan given was made for another structure than the one recorded";

SessionOptions small_session() {
  SessionOptions options;
  options.device = at::kCPU;
  options.small = 1_KiB;
  options.host = 64_MiB;
  options.offload_window = 64_KiB;
  options.prefetch_window = 128_KiB;
  return options;
}

/// The losses and gradients of `steps` steps of a new model. `length`: tokens of a sequence.
std::vector<at::Tensor> train(const TinyOptions& shape, Session* session, int steps,
                              int length = 32) {
  TinyModel model(shape);
  if (session != nullptr) session->register_model(model);
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    model.zero_gradients();
    at::manual_seed(static_cast<std::uint64_t>(100 + i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      const at::Tensor loss = model.loss(model.tokens(2, length, i));
      loss.backward();
      values.push_back(loss.detach().clone());
    }
    for (at::Tensor& gradient : model.gradients()) values.push_back(std::move(gradient));
    model.update();
  }
  return values;
}

int difference(const TinyOptions& shape, Session& session, int steps, int length = 32) {
  const testing::Deterministic deterministic;
  return testing::count_different(train(shape, nullptr, steps, length),
                                  train(shape, &session, steps, length));
}

class PlanFile : public ::testing::Test {
 protected:
  void SetUp() override {
    SessionOptions options = small_session();
    options.rules = parse_rules("[[rule]]\naction = \"offload\"\n", "t.toml");
    Session session(std::move(options));
    (void)train({}, &session, 2);
    saved_ = *session.plan();
    save_plan(saved_, path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  [[nodiscard]] SessionOptions with_plan() const {
    SessionOptions options = small_session();
    options.plan = load_plan(path_);
    return options;
  }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".json");
  Plan saved_;
};

TEST_F(PlanFile, IsExecutedFromTheFirstStepOn) {
  Session session(with_plan());
  EXPECT_FALSE(session.next_step_records());
  EXPECT_EQ(difference({}, session, 1), 0);
  EXPECT_GT(session.report().bytes_out, 500_KiB);
  EXPECT_EQ(difference({}, session, 3), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.recorded_steps, 0U);
  EXPECT_EQ(report.steps, 4U);
  EXPECT_TRUE(report.fallbacks.empty()) << report;
  EXPECT_LT(report.saved_peak_with, report.saved_peak_without);
  EXPECT_EQ(*session.plan(), saved_);
  EXPECT_EQ(session.profile(), nullptr);
}

TEST_F(PlanFile, FitsOtherSizesOfTheSameModel) {
  Session session(with_plan());
  EXPECT_EQ(difference({}, session, 2, 48), 0);
  EXPECT_EQ(session.report().recorded_steps, 0U);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST_F(PlanFile, SetsTheOrderOfReloads) {
  Session session(with_plan());
  (void)train({}, &session, 2);
  // Only the first buffer that backward reads cannot be prefetched.
  EXPECT_LE(session.report().late_reloads, 1U) << session.report();
}

TEST_F(PlanFile, OfAnotherModelFallsBackAndRulesApplyAfterARecordingStep) {
  TinyOptions other;
  other.dropout = 0;  // Saves no masks.
  other.layers = 2;
  SessionOptions options = with_plan();
  options.rules = parse_rules("[[rule]]\nscope = \"*.mlp\"\naction = \"offload\"\n", "t.toml");
  Session session(std::move(options));
  EXPECT_EQ(difference(other, session, 1), 0);
  EXPECT_TRUE(session.next_step_records());
  EXPECT_EQ(difference(other, session, 4), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.recorded_steps, 1U);
  EXPECT_EQ(report.fallbacks.at(kDiverged), 1U) << report;
  EXPECT_EQ(report.fallbacks.at(kOtherStructure), 1U) << report;
  EXPECT_EQ(session.plan()->structure, structure_digest(*session.profile()));
  EXPECT_NE(session.plan()->structure, saved_.structure);
  EXPECT_GT(report.bytes_out, 0_B);
}

TEST_F(PlanFile, OfAnotherModelKeepsEverythingWithoutRules) {
  TinyOptions other;
  other.dropout = 0;
  Session session(with_plan());
  EXPECT_EQ(difference(other, session, 4), 0);
  EXPECT_EQ(session.report().recorded_steps, 1U);
  EXPECT_EQ(session.report().bytes_out, 0_B) << session.report();
}

TEST_F(PlanFile, OfAModelThatSavesMoreIsDetectedAsWrongOnceThatIsForGood) {
  const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
  const auto step_of = [&](Session& session, int layers) {
    const auto step = session.step();
    at::Tensor x = weight;
    for (int i = 0; i < layers; ++i) x = x.exp();
    x.sum().backward();
  };
  SessionOptions options = small_session();
  options.rules = parse_rules("[[rule]]\naction = \"offload\"\n", "t.toml");
  Session first(options);
  for (int i = 0; i < 2; ++i) step_of(first, 3);
  options.plan = *first.plan();
  {
    Session second(options);
    for (int i = 0; i < 15; ++i) step_of(second, 2);  // It saves a part of what is planned.
    EXPECT_FALSE(second.next_step_records());
    EXPECT_TRUE(second.report().fallbacks.empty()) << second.report();
    step_of(second, 2);
    EXPECT_TRUE(second.next_step_records());
    step_of(second, 2);
    step_of(second, 2);
    EXPECT_EQ(second.report().recorded_steps, 1U);
    EXPECT_EQ(second.report().fallbacks.at(kOtherStructure), 1U) << second.report();
  }
  // Without signatures it may be the plan of any model.
  options.plan->chunks[0].sites.signature.clear();
  Session third(std::move(options));
  step_of(third, 2);
  EXPECT_TRUE(third.next_step_records());
  EXPECT_EQ(third.report().fallbacks.at(kDiverged), 1U);
}

TEST_F(PlanFile, IsAcceptedBeforeAndAfterTheFirstStep) {
  for (const int before : {0, 2}) {
    Session session(small_session());
    (void)train({}, &session, before);
    EXPECT_EQ(session.report().bytes_out, 0_B);
    session.use_plan(load_plan(path_));
    EXPECT_EQ(difference({}, session, 2), 0);
    EXPECT_GT(session.report().bytes_out, 500_KiB);
    EXPECT_EQ(session.report().recorded_steps, before == 0 ? 0U : 1U);
  }
}

TEST_F(PlanFile, OfAnotherModelIsAnErrorAfterARecordingStep) {
  TinyOptions other;
  other.layers = 2;
  Session session(small_session());
  (void)train(other, &session, 1);
  EXPECT_THAT(error_text<InvalidArgument>([&] { session.use_plan(load_plan(path_)); }),
              HasSubstr("made for another structure than the one recorded"));
}

TEST_F(PlanFile, WithAnUnknownTypeFallsBack) {
  SessionOptions options = with_plan();
  for (SiteKind& kind : options.plan->chunks[0].sites.kinds) kind.dtype = "Flot";
  Session session(std::move(options));
  EXPECT_EQ(difference({}, session, 3), 0);
  EXPECT_EQ(session.report().fallbacks.at(kDiverged), 1U) << session.report();
  EXPECT_EQ(session.report().fallbacks.at(kOtherStructure), 1U);
  EXPECT_EQ(session.report().recorded_steps, 1U);
}

}  // namespace
}  // namespace spillway
