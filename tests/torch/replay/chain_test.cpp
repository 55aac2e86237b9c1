#include "torch/replay/chain.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torch/replay/replay.hpp"
#include "torch/support/book_recorder.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using testing::BookRecorder;
using testing::count_different;
using ::testing::ElementsAre;
using Access = ChainProgram::Access;
using Operation = ChainProgram::Operation;

constexpr std::int64_t kRows = 512;
constexpr std::int64_t kInner = 256;

/// Runs a program by torch's operators, one by one.
class Interpreter final : public ChainRunner {
 public:
  [[nodiscard]] bool run(const ChainProgram& program, std::int64_t elements, std::int64_t inner,
                         std::span<const at::Tensor> inputs,
                         std::span<const at::Tensor> outputs) override {
    if (refuses) return false;
    programs.push_back(program);
    std::vector<at::Tensor> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].scalar_type(), program.inputs[i].dtype);
      switch (program.inputs[i].access) {
        case Access::kFull:
          values.push_back(inputs[i].reshape({elements / inner, inner}));
          break;
        case Access::kRow:
          values.push_back(inputs[i].reshape({elements / inner, 1}));
          break;
        case Access::kColumn:
          values.push_back(inputs[i].reshape({1, inner}));
          break;
      }
    }
    std::size_t next = 0;
    for (const ChainProgram::Node& node : program.nodes) {
      const auto operand = [&](int which) {
        return values.at(
            static_cast<std::size_t>(node.operands.at(static_cast<std::size_t>(which))));
      };
      values.push_back(result_of(node, operand));
      EXPECT_EQ(values.back().scalar_type(), node.dtype);
      if (node.stored) outputs[next++].copy_(values.back().reshape({elements}));
    }
    EXPECT_EQ(next, outputs.size());
    return true;
  }

  std::vector<ChainProgram> programs;
  bool refuses = false;

 private:
  template <typename Operand>
  static at::Tensor result_of(const ChainProgram::Node& node, const Operand& operand) {
    switch (node.operation) {
      case Operation::kAdd:
        return operand(0) + operand(1);
      case Operation::kSub:
        return operand(0) - operand(1);
      case Operation::kMul:
        return operand(0) * operand(1);
      case Operation::kNegate:
        return -operand(0);
      case Operation::kSquare:
        return operand(0).pow(2);
      case Operation::kSilu:
        return at::silu(operand(0));
      case Operation::kCast:
        return operand(0).to(node.dtype);
    }
    return {};
  }
};

class ChainTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }

  static at::Tensor some(at::ScalarType dtype = at::kBFloat16, std::int64_t inner = kInner) {
    return at::randn({kRows, inner}).to(dtype);
  }

  /// Recomputes them and counts those that differ in a bit.
  int repeat(const std::vector<at::Tensor>& wanted) {
    std::vector<ValueId> values;
    for (const at::Tensor& tensor : wanted) values.push_back(recorder_.value_of(tensor));
    kernels_ = testing::replay(recorder_.book(), recorder_.job_for(values), &interpreter_);
    std::vector<at::Tensor> found;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const c10::Storage& recomputed = recorder_.book().value(values[i]).recomputed;
      EXPECT_TRUE(recomputed) << i;
      found.push_back(TensorWindow(wanted[i]).on(recomputed));
    }
    return count_different(found, wanted);
  }

  [[nodiscard]] std::vector<Operation> operations(std::size_t program) const {
    std::vector<Operation> found;
    for (const auto& node : interpreter_.programs.at(program).nodes)
      found.push_back(node.operation);
    return found;
  }
  [[nodiscard]] std::vector<bool> stored(std::size_t program) const {
    std::vector<bool> found;
    for (const auto& node : interpreter_.programs.at(program).nodes) found.push_back(node.stored);
    return found;
  }

  BookRecorder recorder_;
  Interpreter interpreter_;
  int kernels_ = 0;
};

TEST_F(ChainTest, ComputesAProductAndItsInputInOneKernel) {
  const at::Tensor gate = some();
  const at::Tensor up = some();
  at::Tensor bent;
  const at::Tensor product = recorder_.follow([&] {
    bent = at::silu(gate);
    return bent * up;
  });
  EXPECT_EQ(repeat({bent, product}), 0);
  EXPECT_EQ(kernels_, 1);
  EXPECT_THAT(operations(0), ElementsAre(Operation::kSilu, Operation::kMul));
  EXPECT_THAT(stored(0), ElementsAre(true, true));
  EXPECT_EQ(interpreter_.programs[0].inputs.size(), 2U);
}

TEST_F(ChainTest, DoesNotStoreWhatNothingElseReads) {
  const at::Tensor gate = some();
  const at::Tensor up = some();
  const at::Tensor product = recorder_.follow([&] { return at::silu(gate) * up; });
  EXPECT_EQ(repeat({product}), 0);
  EXPECT_THAT(stored(0), ElementsAre(false, true));
}

/// As models of transformers write it: in float, around a mean.
TEST_F(ChainTest, GoesAroundAReduction) {
  const at::Tensor x = some();
  const at::Tensor weight = at::randn({kInner}).to(at::kBFloat16);
  recorder_.fix(weight);
  at::Tensor wide;
  at::Tensor normed;
  const at::Tensor scaled = recorder_.follow([&] {
    wide = x.to(at::kFloat);
    const at::Tensor scale = (wide.pow(2).mean(-1, true) + 1e-6).rsqrt();
    normed = (wide * scale).to(at::kBFloat16);
    return weight * normed;
  });
  EXPECT_EQ(repeat({wide, normed, scaled}), 0);
  EXPECT_EQ(kernels_, 2);
  EXPECT_THAT(operations(0), ElementsAre(Operation::kCast, Operation::kSquare));
  EXPECT_THAT(stored(0), ElementsAre(true, true));
  EXPECT_THAT(operations(1), ElementsAre(Operation::kMul, Operation::kCast, Operation::kMul));
  EXPECT_THAT(stored(1), ElementsAre(false, true, true));
  const std::vector<ChainProgram::Input> wanted = {
      {at::kFloat, Access::kFull}, {at::kFloat, Access::kRow}, {at::kBFloat16, Access::kColumn}};
  EXPECT_EQ(interpreter_.programs[1].inputs, wanted);
}

TEST_F(ChainTest, WaitsForWhatIsMadeMeanwhile) {
  const at::Tensor gate = some();
  const at::Tensor weight = at::randn({kInner, kInner}).to(at::kBFloat16);
  recorder_.fix(weight);
  const at::Tensor product = recorder_.follow([&] {
    const at::Tensor bent = at::silu(gate);
    return bent * at::mm(gate, weight);
  });
  EXPECT_EQ(repeat({product}), 0);
  EXPECT_EQ(kernels_, 1);
}

TEST_F(ChainTest, EndsWhereAnotherCallReadsIt) {
  const at::Tensor gate = some();
  const at::Tensor product = recorder_.follow([&] {
    const at::Tensor bent = at::silu(gate);
    const at::Tensor sum = bent.sum(-1, true);
    return bent * sum;
  });
  EXPECT_EQ(repeat({product}), 0);
  EXPECT_EQ(kernels_, 0);
}

TEST_F(ChainTest, EndsWhereSomethingIsChangedInPlace) {
  const at::Tensor gate = some();
  at::Tensor other;
  const at::Tensor product = recorder_.follow([&] {
    const at::Tensor bent = at::silu(gate);
    other = gate + gate;
    const at::Tensor first = bent * other;
    other.neg_();
    return first * other;
  });
  EXPECT_EQ(repeat({product, other}), 0);
  EXPECT_EQ(kernels_, 1);
  EXPECT_THAT(operations(0), ElementsAre(Operation::kSilu, Operation::kAdd, Operation::kMul));
}

TEST_F(ChainTest, SkipsUnsupportedOperators) {
  const at::Tensor gate = some();
  for (const auto& program : std::vector<std::function<at::Tensor()>>{
           [&] { return at::silu(gate).mul(2).neg(); },               // A number.
           [&] { return at::add(at::silu(gate), gate, 0.5); },        // A scaled sum.
           [&] { return at::silu(gate).pow(3); },                     // Another power.
           [&] { return at::silu(gate.t()) * gate.t(); },             // Not in one piece.
           [&] { return at::silu(some(at::kDouble)) * 1; },           // Another type.
           [&] { return at::silu(some(at::kBFloat16, 252)).neg(); },  // Another width.
           [&] { return at::silu(gate.narrow(0, 0, 8)).neg(); },      // Another size.
       }) {
    const at::Tensor result = recorder_.follow(program);
    EXPECT_EQ(repeat({result}), 0);
    EXPECT_EQ(kernels_, 0) << interpreter_.programs.back().source();
  }
}

TEST_F(ChainTest, RunsOneByOneWhereThereIsNoKernel) {
  const at::Tensor gate = some();
  at::Tensor bent;
  const at::Tensor product = recorder_.follow([&] {
    bent = at::silu(gate);
    return bent * gate;
  });
  interpreter_.refuses = true;
  EXPECT_EQ(repeat({bent, product}), 0);
  EXPECT_EQ(kernels_, 0);
}

/// What a later replay reads is cached, and freed after its last reader.
TEST_F(ChainTest, CachesWhatLaterReplaysRead) {
  const at::Tensor gate = some();
  at::Tensor product;
  ValueId bent = -1;
  const at::Tensor other = recorder_.follow([&] {
    const at::Tensor silu = at::silu(gate);
    bent = recorder_.value_of(silu);
    product = silu * gate;
    return silu.exp();
  });
  std::vector<CallId> calls = recorder_.job_for({recorder_.value_of(product)}).calls;
  Replay::expect(recorder_.book(), calls);
  Replay::expect(recorder_.book(), recorder_.job_for({recorder_.value_of(other)}).calls);
  EXPECT_EQ(repeat({product}), 0);
  EXPECT_EQ(kernels_, 1);
  EXPECT_THAT(stored(0), ElementsAre(true, true));
  EXPECT_TRUE(recorder_.book().value(bent).recomputed);
  EXPECT_EQ(repeat({other}), 0);
  EXPECT_FALSE(recorder_.book().value(bent).recomputed);
}

}  // namespace
}  // namespace spillway
