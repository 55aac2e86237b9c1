// The main function of test programs that run as several ranks. Rank 0 prints as usual, the others
// only what failed. A case that throws on one rank ends all of them at once.
#include <cstdlib>
#include <iostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace spillway::testing {
namespace {

World* the_world = nullptr;

class PrintsFailures : public ::testing::EmptyTestEventListener {
 public:
  // Asked for when a part has failed, the name would be waited for forever: a lock is held then.
  void OnTestStart(const ::testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + '.' + test.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* const file = result.file_name();
    std::cerr << "rank " << ranks().rank() << ", " << name_ << ": " << (file == nullptr ? "" : file)
              << ':' << result.line_number() << '\n'
              << result.message() << '\n';
  }

 private:
  std::string name_;
};

}  // namespace

World& ranks() { return *the_world; }

}  // namespace spillway::testing

int main(int argc, char** argv) {
  using namespace spillway::testing;
  testing::InitGoogleMock(&argc, argv);
  spillway::WorldOptions options;
  options.timeout = std::chrono::seconds(120);
  options.silence = std::chrono::seconds(60);
  if (const char* bytes = std::getenv("SPILLWAY_TEST_LARGEST_MESSAGE")) {
    options.largest_message = spillway::Bytes(std::strtoull(bytes, nullptr, 10));
  }
  const auto world = spillway::detect_world(options);
  the_world = world.get();
  if (world->rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new PrintsFailures);
  }
  const int result = RUN_ALL_TESTS();
  // A rank may have left a case early; the others would wait for it.
  if (result != 0) world->abort("a test failed");
  constexpr int kAllSkipped = 77;  // As in test_main.cpp.
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  return tests.skipped_test_count() > 0 && tests.successful_test_count() == 0 ? kAllSkipped : 0;
}
