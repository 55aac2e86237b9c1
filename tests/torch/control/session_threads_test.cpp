// Sessions and real threads: several at once, backward elsewhere, threads of autograd, a planner in
// the background.
// Also run under ThreadSanitizer.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using ::testing::Each;
using testing::TinyModel;
using testing::TinyOptions;

/// Without dropout: the generator is one for the process.
TinyOptions shape() {
  TinyOptions options;
  options.dropout = 0;
  options.layers = 2;
  return options;
}

/// Gradients of some steps on one thread. Models draw their weights from the generator of the
/// process, so they are made before the threads are.
std::vector<at::Tensor> trained(TinyModel& model, Session* session) {
  at::set_num_threads(1);
  if (session != nullptr) session->register_model(model);
  const at::Tensor tokens = at::arange(64, at::kLong).view({2, 32});
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 4; ++i) {
    model.zero_gradients();
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      model.loss(tokens).backward();
    }
    for (at::Tensor& each : model.gradients()) gradients.push_back(std::move(each));
    model.update();
  }
  return gradients;
}

std::vector<at::Tensor> trained(Session* session) {
  TinyModel model(shape());
  return trained(model, session);
}

/// The number of values that differ from those without a session, by thread.
std::vector<int> on_three_threads(const std::function<SessionOptions()>& options) {
  const testing::Deterministic deterministic;
  const std::vector<at::Tensor> expected = trained(nullptr);
  std::vector<int> different(3, -1);
  std::vector<TinyModel> models;
  for (std::size_t i = 0; i < different.size(); ++i) models.emplace_back(shape());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < different.size(); ++i) {
    threads.emplace_back([&, i] {
      Session session(options());
      different[i] = count_different(expected, trained(models[i], &session));
    });
  }
  for (std::thread& each : threads) each.join();
  return different;
}

TEST(SessionThreads, SessionsOffloadSideBySide) {
  EXPECT_THAT(on_three_threads(testing::offload_everything), Each(0));
}

TEST(SessionThreads, SessionsRecomputeSideBySide) {
  EXPECT_THAT(on_three_threads(testing::recompute_everything), Each(0));
}

TEST(SessionThreads, AStepMayEndWhileAnotherThreadUsesIt) {
  Session session(testing::offload_everything());
  for (int i = 0; i < 50; ++i) {
    Step step = session.step();
    std::thread user([&] {
      for (int micro = 0; micro < 20; ++micro) {
        step.backward();
        step.pass(0, micro);
      }
    });
    step.end();
    user.join();
    step.pass(0, 20);
    step.end();
  }
  EXPECT_EQ(session.report().steps, 50U);
}

TEST(SessionThreads, BackwardMayRunOnAnotherThread) {
  for (const auto& options : {testing::offload_everything, testing::recompute_everything}) {
    const testing::Deterministic deterministic;
    const std::vector<at::Tensor> expected = trained(nullptr);
    Session session(options());
    TinyModel model(shape());
    session.register_model(model);
    const at::Tensor tokens = at::arange(64, at::kLong).view({2, 32});
    std::vector<at::Tensor> found;
    for (int i = 0; i < 4; ++i) {
      model.zero_gradients();
      {
        const auto step = session.step();
        const at::Tensor loss = model.loss(tokens);
        std::thread([&] {
          at::set_num_threads(1);
          loss.backward();
        }).join();
      }
      for (at::Tensor& each : model.gradients()) found.push_back(std::move(each));
      model.update();
    }
    EXPECT_EQ(count_different(expected, found), 0) << session.report();
  }
}

/// Hands its input on. Its backward first runs the backward of `before`.
struct RunsBackwardOf : torch::autograd::Function<RunsBackwardOf> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::shared_ptr<at::Tensor>& before) {
    context->saved_data["before"] = *before;  // No input: no gradient reaches it from here.
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode enabled(true);
    context->saved_data["before"].toTensor().backward();
    return {gradients[0], at::Tensor()};
  }
};

/// Gradients of a chain of graphs each of which runs the backward of the one before it, deeper than
/// autograd recurses on one thread (60): the rest runs on threads of its own.
std::vector<at::Tensor> nested(Session* session, int steps) {
  constexpr int kDepth = 70;
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < kDepth; ++i) {
    leaves.push_back((at::ones({32, 32}) * (0.01 * i)).set_requires_grad(true));
    if (session != nullptr) session->register_fixed(leaves.back(), FixedReason::kParameter);
  }
  std::vector<at::Tensor> gradients;
  for (int step_number = 0; step_number < steps; ++step_number) {
    for (at::Tensor& each : leaves) each.mutable_grad() = at::Tensor();
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      at::Tensor loss = leaves[0].sin().square().sum();
      for (std::size_t i = 1; i < leaves.size(); ++i) {
        const at::Tensor input =
            RunsBackwardOf::apply(leaves[i], std::make_shared<at::Tensor>(loss));
        loss = (input.sin() * input.exp()).square().sum();
      }
      loss.backward();
    }
    for (const at::Tensor& each : leaves) gradients.push_back(each.grad().clone());
  }
  return gradients;
}

TEST(SessionThreads, SavedTensorsMayBeUnpackedOnThreadsOfAutograd) {
  const testing::Deterministic deterministic;
  at::set_num_threads(1);
  const std::vector<at::Tensor> expected = nested(nullptr, 3);
  for (const auto& options : {testing::offload_everything, testing::recompute_everything}) {
    Session session(options());
    EXPECT_EQ(count_different(expected, nested(&session, 3)), 0) << session.report();
  }
}

TEST(SessionThreads, ThePlannerMayWorkWhileStepsGoOn) {
  const testing::Deterministic deterministic;
  const std::vector<at::Tensor> expected = trained(nullptr);
  SessionOptions options = testing::offload_everything();
  options.rules = {};
  options.budget = Budget::share(0.9);
  options.plan_in_background = true;
  Session session(std::move(options));
  EXPECT_EQ(count_different(expected, trained(&session)), 0) << session.report();
}

/// A model, a session of it, and what autograd computes without it.
class StepThreads : public ::testing::TestWithParam<SessionOptions (*)()> {
 protected:
  StepThreads() {
    at::set_num_threads(1);
    session_ = std::make_unique<Session>(GetParam()());
    session_->register_model(model_);
    gradients();  // Without a step.
  }

  at::Tensor loss() { return model_.loss(at::arange(64, at::kLong).view({2, 32})); }

  /// The gradients of `backward` and nothing else; remembers the first ones as the right ones.
  int gradients(const at::Tensor& loss) {
    model_.zero_gradients();
    loss.backward();
    if (expected_.empty()) expected_ = model_.gradients();
    return count_different(expected_, model_.gradients());
  }
  int gradients() { return gradients(loss()); }

  int next_step() {
    const auto step = session_->step();
    return gradients();
  }

  const testing::Deterministic deterministic_;
  TinyModel model_{shape()};
  std::vector<at::Tensor> expected_;
  std::unique_ptr<Session> session_;
};

INSTANTIATE_TEST_SUITE_P(All, StepThreads,
                         ::testing::Values(&testing::offload_everything,
                                           &testing::recompute_everything));

TEST_P(StepThreads, AStepMayEndOnAnotherThread) {
  for (int i = 0; i < 4; ++i) {
    std::optional<Step> step(session_->step());
    const at::Tensor before = loss();
    std::thread([&] { step.reset(); }).join();
    const at::Tensor after = loss();  // This thread is in no step any more.
    EXPECT_EQ(gradients(after), 0);
    EXPECT_EQ(gradients(before), 0);
    EXPECT_EQ(next_step(), 0);
  }
  EXPECT_EQ(session_->report().steps, 8U);
}

TEST_P(StepThreads, ASessionMayGoOnAnotherThreadWithinAStep) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next_step(), 0);
  auto step = std::make_unique<Step>(session_->step());
  const at::Tensor before = loss();
  std::thread([&] {
    session_.reset();
    step.reset();
  }).join();
  EXPECT_EQ(gradients(), 0);
  EXPECT_EQ(gradients(before), 0);
  session_ = std::make_unique<Session>(GetParam()());
  EXPECT_EQ(next_step(), 0);
}

TEST_P(StepThreads, AThreadMayEndWithinAStep) {
  for (int i = 0; i < 4; ++i) {
    std::optional<Step> step;
    at::Tensor before;
    std::thread([&] {
      at::set_num_threads(1);
      step.emplace(session_->step());
      before = loss();
    }).join();
    EXPECT_EQ(gradients(before), 0);
    if (i % 2 == 0) step.reset();
    // Else the next step ends it, and its own end does nothing to that one.
    auto next = session_->step();
    const at::Tensor during = loss();
    step.reset();
    const at::Tensor after = loss();
    EXPECT_EQ(gradients(during), 0);
    EXPECT_EQ(gradients(after), 0);
  }
  EXPECT_EQ(session_->report().steps, 8U);
}

TEST_P(StepThreads, AStepEndsForGoodWhileItsThreadIsAtWork) {
  // Another thread ends each step somewhere in the middle of it.
  std::mutex mutex;
  std::unique_ptr<Step> open;
  std::atomic<bool> stop = false;
  std::thread ends([&] {
    while (!stop) {
      std::unique_ptr<Step> step;
      {
        const std::lock_guard lock(mutex);
        step = std::move(open);
      }
      step.reset();
      std::this_thread::yield();
    }
  });
  int different = 0;
  for (int i = 0; i < 12; ++i) {
    {
      auto step = std::make_unique<Step>(session_->step());
      const std::lock_guard lock(mutex);
      open = std::move(step);
    }
    different += gradients();
    {
      const std::lock_guard lock(mutex);
      open.reset();
    }
    // The other thread may be about to end it.
    while (session_->report().steps <= static_cast<std::uint64_t>(i)) std::this_thread::yield();
  }
  stop = true;
  ends.join();
  EXPECT_EQ(different, 0) << session_->report();
}

/// Where two threads stand. Relaxed on purpose: it must not order what the threads do to the
/// session, which is what the test is about.
std::atomic<int> stage{0};

void reach(int wanted) { stage.store(wanted, std::memory_order_relaxed); }
void await(int wanted) {
  while (stage.load(std::memory_order_relaxed) < wanted) std::this_thread::yield();
}

/// An operator that returns a copy. The first time in a backward pass, which repeats it, it lets
/// the other thread go to work and waits until that is done.
at::Tensor rendezvous(const at::Tensor& x) {
  static const auto kRegistration = c10::RegisterOperators().op(
      "spillway_test::rendezvous(Tensor x) -> Tensor", [](const at::Tensor& each) {
        if (stage.load(std::memory_order_relaxed) == 1) {
          reach(2);
          await(3);
        }
        const at::AutoDispatchBelowAutograd below;
        return each.clone();
      });
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("spillway_test::rendezvous", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

/// Two graphs from one trunk, whose results one replay computes for both. While `meanwhile` runs,
/// the replay for the first of them is between two of its operators, on another thread.
template <typename Meanwhile>
int while_a_replay_runs(Meanwhile&& meanwhile) {
  at::set_num_threads(1);
  const at::Tensor weight = at::rand({64, 64}).set_requires_grad(true);
  const at::Tensor input = at::rand({64, 64});
  Session session(testing::recompute_everything());
  session.register_fixed(weight, FixedReason::kParameter);
  int different = 0;
  std::vector<at::Tensor> expected;
  for (int i = 0; i < 6; ++i) {
    weight.mutable_grad() = at::Tensor();
    stage = 0;
    std::optional<Step> step;
    const bool replays = i > 0 && !session.next_step_records();
    if (i > 0) step.emplace(session.step());
    at::Tensor first;
    at::Tensor second;
    {
      // `shared` is saved for the second graph only; the first one needs it to be recomputed.
      const at::Tensor early = (input * 2).tanh();
      const at::Tensor shared = rendezvous(early).sigmoid();
      first = ((shared + weight).exp() + 1).sum();
      second = (shared * weight).sum() + (early * weight).sum();
    }
    if (replays) reach(1);
    std::thread backward([&] {
      at::set_num_threads(1);
      first.backward();
    });
    if (replays) {
      await(2);
      meanwhile(second, weight);
      reach(3);
    }
    backward.join();
    if (expected.empty()) expected = {weight.grad().clone()};
    different += count_different(expected, {weight.grad()});
  }
  EXPECT_GT(session.report().bytes_recomputed, 0_B) << session.report();
  return different;
}

TEST(SessionThreads, AGraphMayBeFreedWhileAReplayRuns) {
  EXPECT_EQ(while_a_replay_runs([](at::Tensor& second, const at::Tensor&) { second.reset(); }), 0);
}

TEST(SessionThreads, AForwardPassMayRunWhileAReplayRuns) {
  EXPECT_EQ(while_a_replay_runs([](at::Tensor& second, const at::Tensor& weight) {
              for (int i = 0; i < 50; ++i) second = second + (weight * i).sin().exp().sum();
            }),
            0);
}

}  // namespace
}  // namespace spillway
