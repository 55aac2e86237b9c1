#include "torch/replay/replay.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/op_registration/op_registration.h>
#include <c10/core/DefaultDtype.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_text.hpp"
#include "torch/support/book_recorder.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using testing::BookRecorder;
using testing::count_different;
using testing::error_text;

int calls_of_counted = 0;

/// An operator that counts how often it runs.
at::Tensor counted(const at::Tensor& x) {
  static const auto kRegistration = c10::RegisterOperators().op(
      "spillway_test::counted(Tensor x) -> Tensor", [](const at::Tensor& each) {
        ++calls_of_counted;
        const at::AutoDispatchBelowAutograd below;
        return each + 1;
      });
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("spillway_test::counted", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

class ReplayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    x_ = at::randn({16});
    calls_of_counted = 0;
  }

  [[nodiscard]] bool is_recomputed(ValueId id) {
    return static_cast<bool>(recorder_.book().value(id).recomputed);
  }
  void expect(const std::vector<ValueId>& values) {
    Replay::expect(recorder_.book(), recorder_.job_for(values).calls);
  }
  void run(ValueId value) { (void)testing::replay(recorder_.book(), recorder_.job_for({value})); }

  BookRecorder recorder_;
  at::Tensor x_;
};

TEST_F(ReplayTest, RepeatsEachCallOnceForAllThatReadIt) {
  at::Tensor left;
  const at::Tensor right = recorder_.follow([&] {
    const at::Tensor shared = counted(x_);
    left = shared.sin() * shared;
    return shared.cos() * shared;
  });
  const ValueId of_left = recorder_.value_of(left);
  const ValueId of_right = recorder_.value_of(right);
  expect({of_left, of_right});
  calls_of_counted = 0;
  run(of_left);
  run(of_right);
  EXPECT_EQ(calls_of_counted, 1);
  EXPECT_EQ(count_different({left, right}, {recorder_.recompute(left), recorder_.recompute(right)}),
            0);
}

TEST_F(ReplayTest, FreesAValueAfterItsLastReader) {
  ValueId shared = -1;
  ValueId between = -1;
  at::Tensor left;
  const at::Tensor right = recorder_.follow([&] {
    const at::Tensor first = x_ * 2;
    shared = recorder_.value_of(first);
    const at::Tensor second = first.sin();
    between = recorder_.value_of(second);
    left = second.exp();
    return first.cos();
  });
  expect({recorder_.value_of(left), recorder_.value_of(right)});
  run(recorder_.value_of(left));
  EXPECT_TRUE(is_recomputed(shared));  // cos() will read it.
  EXPECT_FALSE(is_recomputed(between));
  run(recorder_.value_of(right));
  EXPECT_FALSE(is_recomputed(shared));
  EXPECT_TRUE(is_recomputed(recorder_.value_of(left)));
  EXPECT_TRUE(is_recomputed(recorder_.value_of(right)));
}

TEST_F(ReplayTest, NeverEvictsWhatAJobIsWantedFor) {
  ValueId shared = -1;
  at::Tensor left;
  const at::Tensor right = recorder_.follow([&] {
    const at::Tensor first = x_ * 2;
    shared = recorder_.value_of(first);
    left = first.sin();
    return first.cos();
  });
  expect({recorder_.value_of(left), recorder_.value_of(right)});
  const auto run_and_trim = [&](ValueId value, std::size_t bound) {
    const Replay::Job job = recorder_.job_for({value});
    (void)testing::replay(recorder_.book(), job);
    (void)Replay::trim(recorder_.book(), job, bound);
  };
  run_and_trim(recorder_.value_of(left), x_.nbytes());
  EXPECT_TRUE(is_recomputed(shared));  // It is cached for cos().
  run_and_trim(recorder_.value_of(right), x_.nbytes());
  EXPECT_FALSE(is_recomputed(shared));
  run_and_trim(shared, 0);  // Now a buffer of its own.
  EXPECT_TRUE(is_recomputed(shared));
}

TEST_F(ReplayTest, RecomputesWhatTheLimitEvicted) {
  ValueId shared = -1;
  at::Tensor left;
  const at::Tensor right = recorder_.follow([&] {
    const at::Tensor first = counted(x_);
    shared = recorder_.value_of(first);
    left = first.sin();
    return first.cos();
  });
  expect({recorder_.value_of(left), recorder_.value_of(right)});
  calls_of_counted = 0;
  const Replay::Job job = recorder_.job_for({recorder_.value_of(left)});
  (void)testing::replay(recorder_.book(), job);
  (void)Replay::trim(recorder_.book(), job, x_.nbytes());
  EXPECT_TRUE(is_recomputed(shared));
  (void)Replay::trim(recorder_.book(), job, x_.nbytes() - 1);
  EXPECT_FALSE(is_recomputed(shared));
  run(recorder_.value_of(right));
  EXPECT_EQ(calls_of_counted, 2);
  EXPECT_FALSE(is_recomputed(shared));
  EXPECT_EQ(count_different({left, right}, {recorder_.recompute(left), recorder_.recompute(right)}),
            0);
}

TEST_F(ReplayTest, EvictsTheOldestFirst) {
  std::vector<ValueId> shared;
  std::vector<at::Tensor> ends;
  recorder_.follow([&] {
    for (int i = 0; i < 3; ++i) {
      const at::Tensor each = x_ * (i + 2);
      shared.push_back(recorder_.value_of(each));
      ends.push_back(each.sin());
      ends.push_back(each.cos());
    }
    return 0;
  });
  std::vector<ValueId> values;
  for (const at::Tensor& each : ends) values.push_back(recorder_.value_of(each));
  expect(values);
  for (std::size_t i = 0; i < 3; ++i) {
    const Replay::Job job = recorder_.job_for({values[2 * i]});
    (void)testing::replay(recorder_.book(), job);
    (void)Replay::trim(recorder_.book(), job, 2 * x_.nbytes());
  }
  EXPECT_FALSE(is_recomputed(shared[0]));
  EXPECT_TRUE(is_recomputed(shared[1]));
  EXPECT_TRUE(is_recomputed(shared[2]));
}

TEST_F(ReplayTest, ChangesNothingButItsOwnCopies) {
  ValueId before = -1;
  const at::Tensor y = recorder_.follow([&] {
    at::Tensor made = x_.clone();
    before = recorder_.value_of(made);
    made.add_(1);
    return made;
  });
  const at::Tensor x_was = x_.clone();
  const at::Tensor y_was = y.clone();
  const ValueId after = recorder_.value_of(y);
  Replay::Job job = recorder_.job_for({before, after});
  (void)testing::replay(recorder_.book(), job);
  const TensorWindow window(y);
  EXPECT_EQ(count_different({x_was, y_was}, {x_, y}), 0);
  EXPECT_EQ(count_different({x_was, y_was}, {window.on(recorder_.book().value(before).recomputed),
                                             window.on(recorder_.book().value(after).recomputed)}),
            0);
}

TEST_F(ReplayTest, StartsFromACopyWhereARootIsChangedInPlace) {
  // The inputs of a job belong to others, even if a call changes them.
  const at::Tensor y = recorder_.follow([&] { return x_.clone().mul_(2); });
  const ValueId after = recorder_.value_of(y);
  const Call& change = recorder_.book().call(recorder_.book().value(after).maker);
  const ValueId before = change.tensors[0].value;
  const at::Tensor given = x_.clone();
  Replay::Job job;
  job.calls = {recorder_.book().value(after).maker};
  job.inputs[before] = given.storage();
  job.wanted.insert(after);
  (void)testing::replay(recorder_.book(), job);
  EXPECT_EQ(count_different({given}, {x_}), 0);
  EXPECT_EQ(count_different({y}, {recorder_.recompute(y)}), 0);
}

TEST_F(ReplayTest, UsesTheDefaultTypeOfTheForwardPass) {
  const auto was = c10::get_default_dtype();
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const at::Tensor y = recorder_.follow([] { return at::full({4}, 1.5); });
  c10::set_default_dtype(was);
  ASSERT_EQ(y.scalar_type(), at::kDouble);
  EXPECT_EQ(count_different({y}, {recorder_.recompute(y)}), 0);
  EXPECT_EQ(c10::get_default_dtype(), was);
}

TEST_F(ReplayTest, UsesTheDeterministicAlgorithmsOfTheForwardPass) {
  static const auto kRegistration = c10::RegisterOperators().op(
      "spillway_test::deterministic(Tensor x) -> Tensor", [](const at::Tensor& x) {
        const at::AutoDispatchBelowAutograd below;
        return x * (at::globalContext().deterministicAlgorithms() ? 1 : 0);
      });
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, false);
    const at::Tensor y = recorder_.follow([&] {
      return c10::Dispatcher::singleton()
          .findSchemaOrThrow("spillway_test::deterministic", "")
          .typed<at::Tensor(const at::Tensor&)>()
          .call(x_);
    });
    at::globalContext().setDeterministicAlgorithms(!deterministic, false);
    EXPECT_EQ(count_different({y}, {recorder_.recompute(y)}), 0);
    EXPECT_EQ(at::globalContext().deterministicAlgorithms(), !deterministic);
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(ReplayTest, IsNotCastByAutocast) {
  const at::Tensor a = at::randn({8, 8});
  const at::Tensor y = recorder_.follow([&] { return at::mm(a, a); });
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor again = recorder_.recompute(y);
  const bool still_on = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(still_on);
  EXPECT_EQ(count_different({y}, {again}), 0);
}

TEST_F(ReplayTest, RepeatsWhatAutocastDid) {
  const at::Tensor a = at::randn({8, 8});
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor y = recorder_.follow([&] { return at::mm(a, a); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  ASSERT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(count_different({y}, {recorder_.recompute(y)}), 0);
}

TEST_F(ReplayTest, HasGradientsOnWhereTheForwardPassHad) {
  static const auto kRegistration = c10::RegisterOperators().op(
      "spillway_test::gradients(Tensor x) -> Tensor", [](const at::Tensor& x) {
        const bool on = at::GradMode::is_enabled();
        const at::AutoDispatchBelowAutograd below;
        return x * (on ? 1 : 0);
      });
  for (const bool on : {false, true}) {
    const at::Tensor y = recorder_.follow([&] {
      const at::AutoGradMode gradients(on);
      return c10::Dispatcher::singleton()
          .findSchemaOrThrow("spillway_test::gradients", "")
          .typed<at::Tensor(const at::Tensor&)>()
          .call(x_);
    });
    const at::AutoGradMode gradients(!on);
    EXPECT_EQ(count_different({y}, {recorder_.recompute(y)}), 0);
    EXPECT_EQ(at::GradMode::is_enabled(), !on);
  }
}

TEST_F(ReplayTest, MakesNoGraph) {
  const at::Tensor weight = at::randn({16}).set_requires_grad(true);
  const at::Tensor y = recorder_.follow([&] { return (weight * x_).sin(); });
  const at::Tensor again = recorder_.recompute(y);
  EXPECT_FALSE(again.requires_grad());
}

TEST_F(ReplayTest, IsNotRecordedItself) {
  const at::Tensor y = recorder_.follow([&] { return x_.sin().cos(); });
  const CallId calls = recorder_.book().calls();
  (void)recorder_.follow([&] { return recorder_.recompute(y); });
  EXPECT_EQ(recorder_.book().calls(), calls);
}

TEST_F(ReplayTest, ThrowsIfARootWasChanged) {
  const at::Tensor y = recorder_.follow([&] { return x_.sin(); });
  x_.add_(1);
  EXPECT_THAT(
      error_text<c10::Error>([&] { (void)recorder_.recompute(y); }),
      ::testing::HasSubstr("modified by an inplace operation: [float [16]] is at version 2"));
}

TEST_F(ReplayTest, NamesTheCallWhoseArgumentIsGone) {
  const at::Tensor y = recorder_.follow([&] { return x_.sin(); });
  x_.reset();
  EXPECT_THAT(error_text<c10::Error>([&] { (void)recorder_.recompute(y); }),
              ::testing::HasSubstr(
                  "[recompute] aten::sin cannot be repeated: one of its arguments is gone"));
}

}  // namespace
}  // namespace spillway
