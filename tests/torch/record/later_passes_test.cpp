/// Times that a session takes from passes after the profiled one.
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::offload_everything;

TEST(TimesOfLaterPasses, AreUsedAlthoughTheFirstPassMadeATable) {
  SessionOptions options = offload_everything();
  options.rules = {};
  options.budget = 64_MiB;
  options.plan_in_background = false;
  Session session(std::move(options));
  const at::Tensor weight = at::ones({1 << 16}, at::kFloat).requires_grad_();
  at::Tensor table;
  const auto time_of_table = [&] {
    for (const OperatorProfile& each : session.profile()->chunks.at(0).operators) {
      if (each.name == "aten::cos") return each.device_ns;
    }
    return std::int64_t{-1};
  };
  const auto run_step = [&] {
    const auto step = session.step();
    const at::Tensor first = weight.sin();
    if (!table.defined()) table = at::arange(1 << 16, at::kFloat).cos();
    (first.exp() * table).sum().backward();
  };
  run_step();
  EXPECT_GT(time_of_table(), 0);
  for (int i = 0; i < 3; ++i) run_step();  // Verification, then a timed step.
  EXPECT_EQ(time_of_table(), 0);
}

}  // namespace
}  // namespace spillway
