// Children made by fork() while a session exists. They have none of its threads, and its locks may
// be held there for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/forked.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using testing::count_different;
using testing::EndBy;
using testing::in_child;
using testing::TinyModel;

/// A session with copies under way, a plan, and a graph that needs buffers of it.
class SessionFork : public ::testing::TestWithParam<SessionOptions (*)()> {
 protected:
  void SetUp() override {
    session_ = std::make_unique<Session>(GetParam()());
    session_->register_model(model_);
    for (int i = 0; i < 3; ++i) {
      const auto step = session_->step();
      (void)testing::single_step(model_, nullptr, i);
    }
  }

  at::Tensor loss() {
    at::manual_seed(7);
    return model_.loss(model_.tokens(2, 32, 7));
  }

  const testing::Deterministic deterministic_;
  TinyModel model_{testing::TinyOptions()};
  std::unique_ptr<Session> session_;
};

INSTANTIATE_TEST_SUITE_P(All, SessionFork,
                         ::testing::Values(&testing::offload_everything,
                                           &testing::recompute_everything));

TEST_P(SessionFork, AChildMayExit) {
  EXPECT_EQ(in_child([] { return 0; }, EndBy::kExit), "exited with 0");
  const auto step = session_->step();
  const at::Tensor value = loss();
  EXPECT_EQ(in_child([] { return 0; }, EndBy::kExit), "exited with 0");
}

TEST_P(SessionFork, AChildMayDropTheSessionAndItsGraphs) {
  std::optional<Step> step(session_->step());
  at::Tensor value = loss();
  EXPECT_EQ(in_child([&] {
              value.reset();
              step.reset();
              session_.reset();
              return 0;
            }),
            "exited with 0");
  EXPECT_EQ(in_child([&] {
              session_.reset();
              step.reset();
              value.reset();
              return 0;
            }),
            "exited with 0");
  // Nothing of that happened to the parent.
  model_.zero_gradients();
  value.backward();
  const std::vector<at::Tensor> found = model_.gradients();
  step.reset();
  model_.zero_gradients();
  loss().backward();
  EXPECT_EQ(count_different(model_.gradients(), found), 0);
}

TEST_P(SessionFork, AChildMayDropAGraphThatOutlivesItsSession) {
  std::optional<Step> step(session_->step());
  at::Tensor value = loss();
  step.reset();
  session_.reset();
  EXPECT_EQ(in_child([&] {
              value.reset();
              return 0;
            }),
            "exited with 0");
}

TEST_P(SessionFork, AChildIsInNoStep) {
  auto step = session_->step();
  EXPECT_EQ(in_child([&] {
              at::Tensor value = loss();  // Saved by autograd alone.
              step.pass(0, 1);
              step.backward();
              value.reset();
              step.end();
              return 0;
            }),
            "exited with 0");
}

TEST_P(SessionFork, AChildLearnsThatItHasNoSession) {
  const auto step = session_->step();
  const at::Tensor value = loss();
  EXPECT_EQ(in_child([&] {
              const auto says = [](const std::string& text, const char* what) {
                return text.find(what) != std::string::npos;
              };
              const std::string in_step =
                  testing::error_text<InvalidArgument>([&] { (void)session_->step(); });
              if (!says(in_step, "[step] this session belongs to the process that called fork()"))
                return 1;
              const std::string in_report =
                  testing::error_text<InvalidArgument>([&] { (void)session_->report(); });
              return says(in_report, "[report] this session belongs to") ? 0 : 2;
            }),
            "exited with 0");
}

}  // namespace
}  // namespace spillway
