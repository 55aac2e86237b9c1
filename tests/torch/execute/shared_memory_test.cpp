// What the program shares with a session: storages of which others write other parts, and originals
// that it still holds when backward reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "torch/support/program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::Program;

constexpr std::int64_t kEdge = 64;

/// As a kernel of one's own would, which the dispatcher does not see.
void write_as_a_kernel(const at::Tensor& x) { static_cast<float*>(x.data_ptr())[5] += 1; }

/// Releases what was saved before.
at::Tensor more_layers(at::Tensor x) {
  for (int i = 0; i < 6; ++i) x = (x * 1.5).sin();
  return x.sum();
}

SessionOptions verified_offload(Bytes window) {
  SessionOptions options = testing::offload_everything();
  options.verify_every = 1;
  options.offload_window = window;
  return options;
}

/// Squares of one half of a storage or of both; unseen, the second half is written after that.
testing::MakeProgram halves(bool both) {
  return [both] {
    Program program;
    program.weights.push_back(testing::weight({2, kEdge, kEdge}));
    program.step = [weights = program.weights, both](Step*, int step) {
      at::Tensor loss;
      {
        const at::Tensor whole = weights[0] * 2;
        loss = whole.select(0, 0).square().sum();
        if (both) loss = loss + whole.select(0, 1).square().sum();
        if (step >= 3) write_as_a_kernel(whole.select(0, 1));
      }
      loss = loss + more_layers(weights[0]);
      loss.backward();
      return loss;
    };
    return program;
  };
}

TEST(SharedStorages, MayBeWrittenWhereNothingWasSaved) {
  for (const Bytes window : {0_B, 64_KiB}) {
    Session session(verified_offload(window));
    EXPECT_EQ(testing::difference_of(halves(false), session, 7), 0) << to_string(window);
    const SessionReport report = session.report();
    EXPECT_GT(report.bytes_out, 0_B) << report;
    EXPECT_TRUE(report.demoted.empty()) << report;
  }
}

TEST(SharedStorages, AreCheckedInEveryPartThatIsSaved) {
  for (const Bytes window : {0_B, 64_KiB}) {
    Session session(verified_offload(window));
    EXPECT_THROW((void)testing::difference_of(halves(true), session, 7), VerificationError)
        << to_string(window) << session.report();
  }
}

// Autograd would have held the original, and read what was written into it.
TEST(LivingOriginals, AreWhatBackwardReads) {
  const testing::MakeProgram make = [] {
    Program program;
    program.weights.push_back(testing::weight({kEdge, kEdge}));
    program.step = [weights = program.weights](Step*, int step) {
      std::vector<at::Tensor> held;
      at::Tensor loss;
      {
        const at::Tensor x = weights[0] * 2;
        loss = (x * x).sum();
        if (step >= 3) held.push_back(x);
      }
      loss = loss + more_layers(weights[0]);
      if (step >= 5) write_as_a_kernel(held[0]);
      loss.backward();
      return loss;
    };
    return program;
  };
  for (const Bytes window : {0_B, Bytes(4 * kEdge * kEdge), 64_MiB}) {
    SessionOptions options = testing::offload_everything();
    options.offload_window = window;
    options.prefetch_window = window;
    Session session(std::move(options));
    EXPECT_EQ(testing::difference_of(make, session, 8), 0) << to_string(window);
    const SessionReport report = session.report();
    // With the largest window nothing leaves.
    EXPECT_EQ(report.bytes_out > 0_B, window < 64_MiB) << report;
    EXPECT_EQ(report.used_in_place > 0, window < 64_MiB) << report;
  }
}

}  // namespace
}  // namespace spillway
