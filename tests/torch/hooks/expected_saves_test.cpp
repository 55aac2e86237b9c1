#include "torch/hooks/expected_saves.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace spillway {
namespace {

/// Calls of custom functions, as an interpreter would have them. Each is the address of an element.
class ExpectedSaves : public ::testing::Test {
 protected:
  ExpectedSaves() {
    static constexpr FunctionCalls kCalls = {
        [] { return saving; },
        [] { return running.empty() ? nullptr : running.back(); },
        [](FunctionCall call) { return std::count(running.begin(), running.end(), call) > 0; },
    };
    set_function_calls(kCalls);
    running.clear();
    saving = nullptr;
  }

  /// torch saves `count` tensors of the innermost call, which then returns.
  static std::vector<bool> saves(int count) {
    saving = running.back();
    std::vector<bool> left;
    for (int i = 0; i < count; ++i) left.push_back(next_save_is_left());
    saving = nullptr;
    running.pop_back();
    return left;
  }

  static inline std::vector<FunctionCall> running;
  static inline FunctionCall saving = nullptr;
  const char outer = 0;
  const char inner = 0;
};

using Saves = std::vector<bool>;

TEST_F(ExpectedSaves, AreThoseOfTheCallThatSaves) {
  running = {&outer};
  expect_saves({false, true});
  EXPECT_FALSE(next_save_is_left());  // Of an operator within forward().
  EXPECT_EQ(saves(2), Saves({false, true}));
  running = {&outer};
  EXPECT_EQ(saves(2), Saves({false, false}));
}

TEST_F(ExpectedSaves, OfAnInnerCallLeaveThoseOfTheOuterOneAlone) {
  running = {&outer};
  expect_saves({false, true, true});
  running = {&outer, &inner};
  expect_saves({true, false});
  EXPECT_EQ(saves(2), Saves({true, false}));
  running = {&outer, &inner};
  expect_saves({false});  // Without a weight.
  EXPECT_EQ(saves(1), Saves({false}));
  EXPECT_EQ(saves(3), Saves({false, true, true}));
}

TEST_F(ExpectedSaves, OfAnInnerCallThatSavesNothingAreForgotten) {
  running = {&outer};
  expect_saves({false, true});
  running = {&outer, &inner};
  expect_saves({true, true});
  running = {&outer};
  EXPECT_EQ(saves(2), Saves({false, true}));
  running = {&inner};
  EXPECT_EQ(saves(2), Saves({false, false}));
}

TEST_F(ExpectedSaves, OfACallThatFailedAreForgottenWhenItsPlaceIsTakenAgain) {
  running = {&outer, &inner};
  expect_saves({true});
  running = {&inner};
  expect_saves({false});
  EXPECT_EQ(saves(1), Saves({false}));
}

TEST_F(ExpectedSaves, AreTheLastOnesThatACallAnnounced) {
  running = {&outer};
  expect_saves({true, true});
  expect_saves({false, true});
  EXPECT_EQ(saves(2), Saves({false, true}));
}

TEST_F(ExpectedSaves, NeedACall) {
  expect_saves({true});
  running = {&outer};
  EXPECT_EQ(saves(1), Saves({false}));
}

}  // namespace
}  // namespace spillway
