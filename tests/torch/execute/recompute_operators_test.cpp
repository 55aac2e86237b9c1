// Models of all kinds of operators whose buffers are recomputed: results are those of a run without
// Spillway.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "torch/support/program.hpp"

namespace spillway {
namespace {

using testing::check;
using testing::loss_of;
using testing::Program;
using testing::weight;

TEST(RecomputedPrograms, UpdateTheStatisticsOfABatchNormOnce) {
  check([] {
    Program program;
    program.weights = {weight({16, 32}), weight({16}), weight({16}), weight({16, 16})};
    program.statistics = {at::zeros({16}), at::ones({16})};
    program.step = [all = program.weights, statistics = program.statistics](Step*, int) {
      const at::Tensor x = at::linear(at::randn({64, 32}), all[0]).tanh();
      const at::Tensor y = at::batch_norm(x, all[1], all[2], statistics[0], statistics[1],
                                          /*training=*/true, 0.1, 1e-5, false);
      at::Tensor loss = at::linear(at::silu(y * 2), all[3]).square().mean();
      loss.backward();
      return loss;
    };
    return program;
  });
}

TEST(RecomputedPrograms, MayHaveRecurrentLayers) {
  const auto weights = [] {
    return std::vector<at::Tensor>{weight({64, 8}),  weight({64, 16}), weight({64}), weight({64}),
                                   weight({64, 16}), weight({64, 16}), weight({64}), weight({64})};
  };
  check(loss_of(weights, [](const std::vector<at::Tensor>& all) {
    const at::Tensor x = at::randn({12, 4, 8}).exp();
    const std::vector<at::Tensor> start{at::zeros({2, 4, 16}), at::zeros({2, 4, 16})};
    const auto [y, h, c] = at::lstm(x, start, all, true, 2, 0.25, true, false, false);
    return (y.sin() * y).mean() + h.square().mean() + c.tanh().square().mean();
  }));
  const auto fewer = [] {
    return std::vector<at::Tensor>{weight({48, 8}), weight({48, 16}), weight({48}), weight({48})};
  };
  check(loss_of(fewer, [](const std::vector<at::Tensor>& all) {
    const at::Tensor x = at::randn({12, 4, 8}).exp();
    const auto [y, h] = at::gru(x, at::zeros({1, 4, 16}), all, true, 1, 0.0, true, false, false);
    return (y.sin() * y).mean() + h.square().mean();
  }));
}

TEST(RecomputedPrograms, MayHaveConvolutions) {
  for (const bool channels_last : {false, true}) {
    check(loss_of(
        [] {
          return std::vector<at::Tensor>{weight({8, 3, 3, 3}), weight({8}), weight({8, 8, 3, 3})};
        },
        [channels_last](const std::vector<at::Tensor>& all) {
          at::Tensor x = at::randn({2, 3, 16, 16});
          if (channels_last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
          x = at::relu(at::conv2d(x, all[0], all[1], 1, 1));
          x = at::max_pool2d(x, 2);
          x = at::gelu(at::conv2d(x, all[2], {}, 1, 1));
          return at::adaptive_avg_pool2d(x, {1, 1}).square().mean();
        }));
  }
}

TEST(RecomputedPrograms, MayLookUpAndWriteByIndex) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({50, 32}), weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        const at::Tensor tokens = at::randint(50, {40}, at::kLong);
        at::Tensor x = at::embedding(all[0], tokens) * 2;
        const at::Tensor rows = at::arange(10) * 3;
        const at::Tensor part = at::mm(x.index_select(0, rows), all[1]).exp();
        c10::List<std::optional<at::Tensor>> indices;
        indices.push_back(rows);
        x = x.index_put(indices, part, true).sin();
        x = x.index_put_(indices, part * 2);
        return (x * x.cos()).mean() + x.gather(0, at::zeros({4, 32}, at::kLong)).mean();
      }));
}

TEST(RecomputedPrograms, MayAttendWithAndWithoutDropout) {
  for (const double dropout : {0.0, 0.2}) {  // The kernel for CPUs, and matrix products.
    for (const bool causal : {false, true}) {
      check(loss_of(
          [] {
            return std::vector<at::Tensor>{weight({96, 32}), weight({32, 32})};
          },
          [=](const std::vector<at::Tensor>& all) {
            const at::Tensor x = at::randn({2, 24, 32}).tanh();
            const auto qkv = at::linear(x, all[0]).view({2, 24, 3, 4, 8}).permute({2, 0, 3, 1, 4});
            const at::Tensor y =
                at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, dropout, causal);
            const at::Tensor merged = y.transpose(1, 2).reshape({2, 24, 32});
            return at::linear(at::gelu(merged), all[1]).square().mean();
          }));
    }
  }
}

TEST(RecomputedPrograms, MayBeginWithPositionsAndMasks) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        const at::Tensor position = at::arange(32, at::kFloat).unsqueeze(1);
        const at::Tensor angle = position * at::pow(0.5, at::arange(32) / 4.0);
        const at::Tensor mask = at::ones({32, 32}, at::kBool).tril();
        const at::Tensor scores = at::mm(angle.sin(), all[0]) * angle.cos();
        const at::Tensor chances = scores.masked_fill(mask.logical_not(), -1e9).softmax(-1);
        return (chances * at::where(mask, angle, scores)).mean();
      }));
}

/// Saves an input, an output and a value of its own.
struct Swish : torch::autograd::Function<Swish> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor gate = at::sigmoid(x);
    at::Tensor y = x * gate;
    context->save_for_backward({x, gate, y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * (saved[1] + saved[2] * (1 - saved[1]))};
  }
};

TEST(RecomputedPrograms, MayHaveFunctionsOfTheirOwn) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        at::Tensor x = at::mm(at::randn({32, 32}), all[0]);
        x = Swish::apply(Swish::apply(x.sin()) * 2);
        return (x * x).mean();
      }));
}

/// Runs its layer again in backward, as torch's own checkpoint does, with the same random numbers.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
    return at::dropout(at::gelu(at::mm(x, weight)).tanh(), 0.2, true);
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    context->saved_data["state"] = at::globalContext().defaultGenerator(at::kCPU).get_state();
    return layer(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].detach().set_requires_grad(true);
    const at::Tensor weight = saved[1].detach().set_requires_grad(true);
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    const at::Tensor now = generator.get_state();
    generator.set_state(context->saved_data["state"].toTensor());
    const at::AutoGradMode with_gradients(true);
    const at::Tensor again = layer(x, weight);
    generator.set_state(now);
    return torch::autograd::grad({again}, {x, weight}, {gradients[0]});
  }
};

TEST(RecomputedPrograms, MayHaveACheckpointInside) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        at::Tensor x = at::mm(at::randn({32, 32}), all[0]).sin();
        for (int i = 0; i < 3; ++i) x = Checkpoint::apply(x, all[0]).cos();
        return (x * x).mean();
      }));
}

}  // namespace
}  // namespace spillway
