#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/graph_task.h>

#include "torch/support/training.hpp"
#include "torch/support/weight_program.hpp"

namespace spillway {
namespace {

using testing::difference;
using testing::difference_of;
using ::testing::HasSubstr;
using testing::recompute_everything;
using testing::single_step;
using testing::TinyModel;
using testing::with_rules;

/// Calls an operator that was registered below.
at::Tensor call_operator(const char* name, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x.detach());
}

TEST(Verification, CatchesAKernelThatTheDispatcherDoesNotSee) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int) {
                  const at::Tensor x = weight * 2;
                  static_cast<float*>(x.data_ptr())[5] = 7;  // As a kernel of one's own would.
                  return x.exp().sum() + (x * x).sum();
                },
                session),
            0);
  ASSERT_FALSE(session.report().demoted.empty()) << session.report();
  EXPECT_THAT(session.report().demoted[0], HasSubstr("its recomputed bits differ"));
  EXPECT_THAT(session.report().to_text(), HasSubstr("bits differ"));
}

TEST(Verification, DemotesOnlyTheBufferThatCausedTheMismatch) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int) {
                  const at::Tensor x = weight * 2;
                  static_cast<float*>(x.data_ptr())[5] = 7;
                  const at::Tensor y = x.sin();
                  return (y * y.cos()).sum() + (x * x).sum();
                },
                session, 6),
            0);
  EXPECT_EQ(session.report().demoted.size(), 1U) << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U);
}

TEST(Verification, KeepsWhatIsModifiedUnseenByAutograd) {
  for (const char* const action : {"recompute", "offload"}) {
    Session session(with_rules(std::string("[[rule]]\naction = \"") + action + "\"\n"));
    EXPECT_EQ(difference_of(
                  [](const at::Tensor& weight, int) {
                    const at::Tensor x = weight * 2;
                    const at::Tensor y = x * x;
                    x.variable_data().add_(1);
                    return y.sum();
                  },
                  session),
              0);
  }
}

TEST(Verification, DemotesAnOperatorThatFailsWhenItIsRepeated) {
  static const auto registration = c10::RegisterOperators().op(
      "spillway_test::forward_only(Tensor x) -> Tensor", [](const at::Tensor& x) {
        TORCH_CHECK(torch::autograd::get_current_graph_task_id() == -1, "for forward only");
        const at::AutoDispatchBelowADInplaceOrView kernel;
        return x * 2;
      });
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int) {
                  const at::Tensor x = call_operator("spillway_test::forward_only", weight);
                  const at::Tensor loss = (x * weight).sum();  // Saves x first.
                  return loss + (x.sin() * weight).sum();
                },
                session, 6),
            0);
  const SessionReport report = session.report();
  ASSERT_EQ(report.demoted.size(), 1U) << report;
  EXPECT_THAT(report.demoted[0], HasSubstr("not recomputable: for forward only"));
  EXPECT_GT(report.repeated_calls, 0U) << report;  // What was made of it is recomputed.
}

TEST(Verification, DemotesAllResultsOfAnUnsteadyOperator) {
  static int calls = 0;
  static const auto registration =
      c10::RegisterOperators().op("spillway_test::unsteady_pair(Tensor x) -> (Tensor, Tensor)",
                                  [](const at::Tensor& x) -> std::tuple<at::Tensor, at::Tensor> {
                                    ++calls;
                                    const at::AutoDispatchBelowADInplaceOrView kernel;
                                    return {x + calls, x - calls};
                                  });
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                [](const at::Tensor& weight, int i) {
                  calls = 100 * i;
                  const auto [a, b] =
                      c10::Dispatcher::singleton()
                          .findSchemaOrThrow("spillway_test::unsteady_pair", "")
                          .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>()
                          .call(weight.detach());
                  return (a * weight).sum() + (b * weight).sum();
                },
                session),
            0);
  EXPECT_EQ(session.report().demoted.size(), 2U) << session.report();
  EXPECT_EQ(session.report().repeated_calls, 0U) << session.report();
}

TEST(Verification, IsRepeatedEveryNSteps) {
  // The kernel that the dispatcher does not see runs late; only a later verification can find it.
  const auto demoted_with = [](int verify_every, int& different) {
    SessionOptions options = recompute_everything();
    options.verify_every = verify_every;
    Session session(std::move(options));
    different = difference_of(
        [](const at::Tensor& weight, int i) {
          const at::Tensor x = weight * 2;
          if (i >= 5) static_cast<float*>(x.data_ptr())[5] = 7;
          return x.exp().sum() + (x * x).sum();
        },
        session, 8);
    return session.report().demoted.size();
  };
  int different = 0;
  EXPECT_EQ(demoted_with(3, different), 1U);  // Step 6 is the first with the kernel.
  EXPECT_EQ(different, 0);
  EXPECT_EQ(demoted_with(0, different), 0U);
  EXPECT_EQ(different, 3);
}

}  // namespace
}  // namespace spillway
